/* What all open instances of one table share: its trees, its definition, its counters.

   One Table_share per TABLE_SHARE (per partition where there are some). It is made by the first open and freed with the
   TABLE_SHARE; the server closes all instances before DDL changes what it holds.

   Counters
     S1  auto-increment values handed out in this process never repeat, whatever is rolled back. The counter starts at the
         highest of: last key + 1, the value kept in tree "#frond/auto_increment", the AUTO_INCREMENT of CREATE or ALTER. (ALTER may lower it, to just
         above the last row, however many were deleted behind that one; the tree keeps then what it was lowered from.)
     S2  the kept value is raised to the counter before a row above it is deleted, by a commit of its own that no sync waits
         for: it lies before the deletion in the log. So a restart never hands out a deleted row's value again, and inserts
         pay nothing for that. It is raised in the same way after a rollback of inserted rows (that of a prepared transaction of
         another session raises those of all tables), and when the table is closed: so a restart does not hand out their values
         again either. On a full disk a row is deleted although the value cannot be kept: that is tried again at the next.
     S3  hidden primary keys count up from the last one found at open, and are never given twice: a row is written over
         whatever has its key.
     S4  a table's counters stay in memory until it is dropped, while its Table_share may come and go under open transactions.
         Each opening raises them to what it finds. Rows whose insertion or deletion is not decided count: a prepared
         transaction may be older than the process.

   Copyright (c) 2026 The FrondDB maintainers. SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef FROND_MARIADB_SHARE_H
#define FROND_MARIADB_SHARE_H

#include "server.h"

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <vector>

#include "definition.h"
#include "frond.h"

namespace frond {

/* Name of a table's primary tree: its path as the server writes it, without "./"; "#tmp/…" for temporary tables. */
std::string tree_name(const char *path);
/* Whether the path is in a schema whose trees would begin as FROND's own do: the server writes a '#' of the user's otherwise, but for what comes
   as `#mysql50##…`, the name of a file. */
bool is_reserved(const char *path);
/* Name of the tree of one of its secondary indexes. */
std::string index_tree_name(const std::string &table, uint32_t index_id);
/* Names of temporary tables' trees begin so. */
extern const char temporary_prefix[];

/* The metadata of the tree of an index that is being built; no other index tree has any. */
extern const char building_mark[];

class Index_build;

/* A secondary index as the table's key number k sees it. */
struct Index_tree {
  frond_tree *tree= nullptr; /* null for the primary key */
  uint32_t id= 0;
  bool unique= false;
  bool clustering= false;
};

/* What a table hands out (S4). */
struct Counters {
  explicit Counters(uint64_t id) : table_id(id) {}
  /* Raises the kept value to the counter, `value` at least (S2). */
  frond_status keep(uint64_t value, int64_t lock_wait_ms);
  void keep_given();
  /* A transaction's changes were undone. */
  void rows_undone();
  /* They were committed. */
  void rows_changed() { changed_at.store(hrtime_to_my_time(my_hrtime()), std::memory_order_relaxed); }

  const uint64_t table_id;
  /* The number of rows that the share counts is not so. */
  std::atomic<bool> miscounted{true};
  /* When a change of rows was committed last, in this process; 0: never. */
  std::atomic<time_t> changed_at{0};
  std::atomic<uint64_t> hidden_key{1};
  std::mutex latch;
  /* Written under the latch; read without it to see that there is nothing to do. */
  std::atomic<uint64_t> next{1}; /* auto-increment value */
  std::atomic<uint64_t> kept{0}; /* in the tree */
  /* Under the latch: the highest value that the counter was above when ALTER lowered it, 0: it never did, and whether the last row below has been
     looked for since, however many keys without a row lie behind it. What else lies behind the last row a crash has rolled back. */
  uint64_t lowered_from= 0;
  bool searched= false;
};

/* Statistics of a table's indexes. */
struct Key_statistics {
  uint64_t rows= 0;      /* of the table then */
  uint64_t row_bytes= 0; /* of a row before compression, but for what lies apart, on average; 0: not known */
  std::vector<std::vector<uint64_t>> rows_per_key; /* by key number, for the first 1, 2, … columns; empty: not known */
};

class Table_share : public Handler_share {
public:
  Table_share()= default;
  ~Table_share() override;

  /* Opens the trees of `table`. 0 or an HA_ERR_*. */
  int open(const char *path, const TABLE *table);

  /* Statistics of the whole table, from memory: what the engine said last, and what was inserted and deleted since. The engine
     is asked when much has changed or some time has passed, by one caller while others go on with what there is. It estimates
     in logarithmic time; a table that looks small, or of which nothing is known, is counted as far as a large one begins.
     `now`: of my_interval_timer, or not much older. */
  enum class Precision {
    recent,  /* a moment old will do; and where very many keys without a row are met, rows are not counted */
    present, /* as it is now; counted no more than that */
    counted  /* for who shows them, or acts on a table without rows */
  };
  struct Sizes {
    uint64_t rows= 0, data_bytes= 0, blob_bytes= 0 /* of these, of rows that lie apart */, index_bytes= 0;
  };
  Sizes statistics(uint64_t now, Precision precision);
  void row_inserted() { inserted.fetch_add(1, std::memory_order_relaxed); }
  void row_deleted() { deleted.fetch_add(1, std::memory_order_relaxed); }
  void all_changed()
  {
    replaced.fetch_add(UINT32_MAX, std::memory_order_relaxed);
    counters->miscounted.store(true, std::memory_order_relaxed);
    counters->rows_changed();
  }
  time_t changed_at() const { return counters->changed_at.load(std::memory_order_relaxed); }
  /* To be told by who commits or undoes changes; they may outlive the share. */
  const std::shared_ptr<Counters> &shared_counters() const { return counters; }

  /* Statistics of indexes. Those of ANALYZE, and those that the table was opened with, serve until as many rows have changed as
     there were; where there are none that fit, a caller to whom take_index_sampling says true reads a few places and calls
     set_index_statistics; or give_up_index_sampling, where it did not get there: then somebody else tries a little later. */
  bool take_index_sampling(uint64_t rows_now);
  void set_index_statistics(const Key_statistics &statistics);
  void give_up_index_sampling();
  /* In the definition too, for good. */
  frond_status keep_analyzed_statistics(const Key_statistics &statistics);
  /* What is in use already, into the definition for the next opening; no matter if that cannot be done now. */
  void keep_sampled_statistics(const Key_statistics &statistics);
  Key_statistics index_statistics();
  /* Changes with them; never 0 once they are set. */
  uint64_t index_statistics_version() const { return key_statistics_version.load(std::memory_order_acquire); }

  /* Auto-increment: the next `count` values of the series offset, offset + increment, … Returns the first, 0 at the end. */
  uint64_t reserve_auto_increment(uint64_t offset, uint64_t increment, uint64_t count, uint64_t max);
  /* Of the values that end before `end`, those from `unused` on were not used by the only writer. */
  void give_back_auto_increment(uint64_t unused, uint64_t end);
  /* A row was written with this value. */
  void saw_auto_increment(uint64_t value);
  uint64_t next_auto_increment();
  /* What the tree is to keep where ALTER says that the counter starts at `value`; empty: nothing. */
  std::string kept_when_lowered(uint64_t value);
  /* Sets the counter, as TRUNCATE and ALTER do. */
  void set_auto_increment(uint64_t value);
  /* Before a row with this value is deleted (S2). */
  frond_status keep_auto_increment(uint64_t value);

  uint64_t next_hidden_key() { return counters->hidden_key.fetch_add(1, std::memory_order_relaxed); }

  std::string name;
  TABLE_SHARE *table_share= nullptr; /* of the whole table, for a partition as well */
  Table_definition definition;
  /* When its youngest tree came (trees_came). */
  uint64_t born= 0;
  /* When it was created or altered last, by its .frm file; 0: it has none. */
  time_t created= 0;
  frond_tree *primary= nullptr;
  std::vector<Index_tree> indexes; /* by key number of the TABLE */

  /* Indexes that ALTER TABLE is building, or null: whoever has written a row tells it (index_build.h), with the latch held
     shared. */
  std::atomic<Index_build *> build{nullptr};
  std::shared_mutex build_latch;

private:
  int open_indexes(frond_txn *txn, const TABLE *table);
  int start_counters(const TABLE *table);
  int raise_counters(frond_txn *txn, const TABLE *table);
  uint64_t lowered_from(uint64_t value) const; /* once the counter starts at `value`; under its latch */

  std::shared_ptr<Counters> counters;

  uint64_t changes() const
  {
    return inserted.load(std::memory_order_relaxed) + deleted.load(std::memory_order_relaxed) +
           replaced.load(std::memory_order_relaxed);
  }

  std::atomic<uint64_t> inserted{0}, deleted{0}, replaced{0}; /* rows */
  /* What the engine said, and how many rows had been inserted and deleted when it was asked. */
  struct Size : Sizes {
    /* A guess is the engine's estimate where they should have been counted. */
    enum Rows_are { ESTIMATED, COUNTED, GUESSED };
    uint64_t inserted= 0, deleted= 0;
    Rows_are rows_are= GUESSED; /* not published with the rest */
    uint64_t rows_now(uint64_t inserted_now, uint64_t deleted_now) const;
  };
  /* When to measure again, in nanoseconds: for no statement before the one, because that would take too much of the time; after the other even if
     little has changed. */
  struct Times {
    uint64_t rest, after;
  };
  Size measure(const Size &last, bool unknown, Precision precision) const;
  bool is_measuring_due(const Size &size, const Times &times, uint64_t now, Precision precision) const;
  Times measuring_times() const;
  bool read_size(Size *size, Times *times) const;
  void write_size(const Size &size, const Times &times);

  std::mutex statistics_latch;
  std::condition_variable measured;
  bool measuring= false; /* this, the next and key_statistics: under statistics_latch */
  Size size;
  Key_statistics key_statistics;

  /* `size` once more, and when to measure again, for every statement to read without a latch. What is read between two readings of
     an even version that is the same belongs together. On a line of its own. */
  struct alignas(64) Published {
    std::atomic<uint64_t> version{0};
    std::atomic<uint64_t> rows{0}, data_bytes{0}, blob_bytes{0}, index_bytes{0}, inserted{0}, deleted{0};
    std::atomic<uint64_t> rest{0}, after{0}; /* as in Times */
  };
  Published published;
  std::atomic<bool> guessed{false}; /* size.rows_are, for who asks for more */

  void load_index_statistics();
  void put_statistics(const Key_statistics &statistics, Table_definition *target) const;
  frond_status write_statistics(const Key_statistics &statistics, const frond_txn_options &options);
  std::atomic<uint64_t> key_statistics_version{0};
  std::atomic<bool> key_sampling{false};         /* somebody is at it */
  std::atomic<uint64_t> key_sampling_after{0};   /* nobody before then, in nanoseconds */
  std::atomic<bool> key_statistics_kept{false};  /* they are those of ANALYZE, or of the opening */
  std::atomic<uint64_t> key_sampled_rows{0}, key_sampled_changes{0};
};

/* Calls use(share) with the Table_share of an open table; it and its TABLE_SHARE stay meanwhile. False when the table whose
   primary tree has this name is not open. */
bool with_open_table(const std::string &name, const std::function<void(const Table_share &)> &use);

/* The tree that keeps auto-increment counters; opened by the plugin's init. */
extern frond_tree *auto_increment_tree;
/* Its key for a table. */
std::string auto_increment_key(uint64_t table_id);

/* A snapshot that is older than a tree finds it empty: who reads by one has to be told. The clock ticks whenever a table gets
   trees, by CREATE or ALTER, after their commit; a table's time is that of its last tick in this process. With a table's trees,
   after the commit that drops them, go its counters. */
uint64_t trees_clock();
void trees_came(uint64_t table_id);
void trees_went(const std::vector<uint64_t> &table_ids);
/* A transaction was undone of which nobody knows any more what tables it had changed: none has counted right, for all that is known. */
void rows_undone_somewhere();

/* Reads the definition of a table. FROND_NOT_FOUND, FROND_CORRUPTION. */
frond_status read_definition(frond_txn *txn, const std::string &name, Table_definition *definition);
/* Writes it as the metadata of the primary tree, keeping the codec. */
frond_status write_definition(frond_txn *txn, frond_tree *tree, const Table_definition &definition);

} // namespace frond

#endif
