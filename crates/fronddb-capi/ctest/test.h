/* What the groups of this test program share: checks that name their place, and short ways to say things. */
#ifndef FROND_CTEST_H
#define FROND_CTEST_H

#include <stdio.h>
#include <stdlib.h>

#include "frond.h"

/* Ends the program unless the condition holds. */
#define CHECK(condition) check((condition) != 0, #condition, __FILE__, __LINE__)
/* Ends the program unless the call comes to this status. */
#define IS(expected, call) check_status((expected), (call), #call, __FILE__, __LINE__)
#define OK(call) IS(FROND_OK, call)
#define WRONG(call) IS(FROND_INVALID_ARGUMENT, call)

void check(int holds, const char *what, const char *file, int line);
void check_status(frond_status expected, frond_status status, const char *what, const char *file, int line);

/* A slice of a text, without its NUL. */
frond_slice text(const char *string);
/* No slice. */
frond_slice none(void);
/* Whether the slice holds just this text. */
int is(frond_slice slice, const char *string);

/* A new database in its own directory, below the program's. */
frond_db *open_new(const char *name);
/* Opens the database of that name again. */
frond_db *open_again(const char *name);
/* Where the database of that name lives; lent until the next call. */
const char *path_of(const char *name);
frond_txn *begin(frond_db *db);

/* The groups. */
void test_arguments(void);
void test_rows(void);
void test_cursors(void);
void test_transactions(void);
void test_locks(void);
void test_threads(void);
void test_recovery(void);
void test_inside(void);
void test_options(void);
void test_bad_days(void);

#endif
