#!/usr/bin/env bash
# ddl-crash.sh [KILLS]: DDL that is killed comes back as the old or the new.
#
# A private server runs random DDL from several sessions, and transfers over one table whose indexes and columns come and go;
# then it is killed with SIGKILL at a random moment and started again. After each start:
#   - every table opens, has the same rows through each of its indexes, and CHECK TABLE finds nothing
#   - every tree of the engine belongs to a table, and every partition to one of its table's; no file and no tree of a half-done
#     ALTER TABLE is left
#   - the transfers' sum is what it was
# Every second round runs with a binary log, which takes part in the recovery of DDL.
#
# Environment: SEED (1). Its server has a folder of its own, target/mariadb/ddl-crash, which is emptied first.

source "$(dirname "$0")/common.sh"

kills=${1:-20}
seed=${SEED:-1}
work=$out/ddl-crash
export FROND_DATA=$work/data # not the caller's: that is where a server of his has its data
server=$repo/mariadb/tools/server.sh
sessions=3
accounts=500

client() {
    "$server" client test "$@"
}

server_options() { # every second round with a binary log
    [ $(($1 % 2)) -eq 0 ] || echo "--log-bin=$work/binlog --binlog-format=ROW --server-id=1"
}

# Random DDL of one session, endless for the time that a round takes. Tables a, b and c of the session, and p and q, which are
# partitioned. A table does not become partitioned or cease to be, and p is never copied, to Aria least of all: the
# server's own recovery then loses the file of partitions (.par) and leaves the copy's files, whoever keeps the rows.
statements() {
    awk -v seed="$1" -v session="$2" 'BEGIN {
        srand(seed * 1000 + session)
        split("a b c", names, " ")
        for (i = 0; i < 4000; i++) {
            t = names[1 + int(rand() * 3)] session
            u = names[1 + int(rand() * 3)] session
            n = int(rand() * 4)
            k = int(rand() * 36)
            p = (rand() < 0.5 ? "p" : "q") session
            shape = "(id INT AUTO_INCREMENT PRIMARY KEY, a INT, b VARCHAR(40), KEY a (a))"
            if (k < 3) print "CREATE TABLE IF NOT EXISTS " t " " shape ";"
            else if (k == 3) print "CREATE OR REPLACE TABLE " t " " shape ";"
            else if (k == 4) print "CREATE OR REPLACE TABLE " t " (PRIMARY KEY (id), KEY a (a)) SELECT seq AS id, seq % 7 AS a, CONCAT(\"s\", seq) AS b FROM seq_1_to_300;"
            else if (k < 7) print "INSERT INTO " t " (a, b) SELECT seq % 5, CONCAT(\"b\", seq) FROM seq_1_to_200;"
            else if (k == 7) print "DROP TABLE IF EXISTS " t ";"
            else if (k == 8) print "DROP TABLE IF EXISTS " t ", " u ";"
            else if (k == 9) print "RENAME TABLE " t " TO " u ";"
            else if (k == 10) print "RENAME TABLE " t " TO x" session ", " u " TO " t ", x" session " TO " u ";"
            else if (k == 11) print "TRUNCATE TABLE " t ";"
            else if (k == 12) print "ALTER TABLE " t " ADD COLUMN IF NOT EXISTS n" n " INT DEFAULT " i ";"
            else if (k == 13) print "ALTER TABLE " t " DROP COLUMN IF EXISTS n" n ", COMMENT=\"" i "\";"
            else if (k == 14) print "ALTER TABLE " t " ADD INDEX IF NOT EXISTS i" n " (b, a), ADD UNIQUE IF NOT EXISTS u" n " (id, b);"
            else if (k == 15) print "ALTER TABLE " t " DROP INDEX IF EXISTS i" n ", DROP INDEX IF EXISTS u" n ";"
            else if (k == 16) print "ALTER TABLE " t " MODIFY b VARCHAR(" 40 + i ");"
            else if (k == 17) print "ALTER TABLE " t " RENAME TO " u ", ADD COLUMN IF NOT EXISTS n" n " INT;"
            else if (k == 18) print "ALTER TABLE " t " FORCE;"
            else if (k == 19) print "ALTER TABLE " t " ENGINE=Aria;"
            else if (k == 20) print "ALTER TABLE " t " ENGINE=FROND COMPRESSION=LZ4;"
            else if (k == 21) print "ALTER TABLE " p " COALESCE PARTITION 1;"
            else if (k == 22) print "ALTER TABLE " p " ADD PARTITION PARTITIONS 1;"
            else if (k == 23) print "INSERT IGNORE INTO " p " (id, a, b) SELECT seq, seq % 5, CONCAT(\"b\", seq) FROM seq_1_to_200;"
            else if (k < 27) print "CREATE TABLE IF NOT EXISTS " p " " shape " PARTITION BY HASH (id) PARTITIONS " 3 + 2 * n ";"
            else if (k < 29) print "DROP TABLE IF EXISTS " p ";"
            else if (k == 29) print "DROP TABLE IF EXISTS p" session ", q" session ";"
            else if (k == 30) print "RENAME TABLE p" session " TO q" session ";"
            else if (k == 31) print "RENAME TABLE " p " TO y" session ", missing TO " p ";" # the second is refused, the first undone
            else if (k > 33) print "ALTER TABLE " p " RENAME TO " (p ~ /^p/ ? "q" : "p") session ", ADD COLUMN IF NOT EXISTS n" n " INT, ALGORITHM=INSTANT;"
            else print "RENAME TABLE q" session " TO y" session ", p" session " TO q" session ", y" session " TO p" session ";"
        }
    }'
}

# DDL on the table that the transfers run over.
bank_statements() {
    for ((i = 0; i < 500; i++)); do
        echo "ALTER TABLE bank ADD INDEX balance (balance), ADD UNIQUE both_ (owner, id), ALGORITHM=NOCOPY, LOCK=NONE;"
        echo "ALTER TABLE bank ADD COLUMN c$i INT DEFAULT $i, DROP INDEX owner, ALGORITHM=INSTANT;"
        echo "ALTER TABLE bank ADD INDEX owner (owner), DROP INDEX both_;"
        echo "ALTER TABLE bank DROP COLUMN c$i, DROP INDEX balance;"
        echo "ALTER TABLE bank FORCE;"
    done
}

prepare() {
    client <<SQL
CREATE TABLE bank (id INT PRIMARY KEY, owner VARCHAR(20), balance INT NOT NULL, KEY owner (owner)) ENGINE=FROND;
INSERT INTO bank SELECT seq, CONCAT('o', seq % 50), 100 FROM seq_1_to_$accounts;
DELIMITER //
CREATE PROCEDURE transfer(rounds INT)
BEGIN
  DECLARE i INT DEFAULT 0;
  DECLARE CONTINUE HANDLER FOR SQLEXCEPTION ROLLBACK;
  WHILE i < rounds DO
    SET @from = 1 + FLOOR(RAND() * $accounts), @to = 1 + FLOOR(RAND() * $accounts);
    BEGIN
      DECLARE EXIT HANDLER FOR SQLEXCEPTION ROLLBACK;
      START TRANSACTION;
      UPDATE bank SET balance = balance - 1 WHERE id = LEAST(@from, @to);
      UPDATE bank SET balance = balance + 1 WHERE id = GREATEST(@from, @to);
      IF @from = @to THEN ROLLBACK; ELSE COMMIT; END IF;
    END;
    SET i = i + 1;
  END WHILE;
END//
-- Everything that is wrong, a row each.
CREATE PROCEDURE verify()
BEGIN
  DECLARE first_ TEXT;
  CREATE OR REPLACE TEMPORARY TABLE wrong (what VARCHAR(2000)) ENGINE=MEMORY;
  FOR t IN (SELECT table_name, engine, table_comment FROM information_schema.tables WHERE table_schema = 'test' AND table_type = 'BASE TABLE' ORDER BY 1) DO
    BEGIN
      DECLARE EXIT HANDLER FOR SQLEXCEPTION
      BEGIN
        GET DIAGNOSTICS CONDITION 1 @message = MESSAGE_TEXT;
        INSERT INTO wrong VALUES (CONCAT(t.table_name, ': ', @message));
      END;
      IF t.engine IS NULL THEN INSERT INTO wrong VALUES (CONCAT(t.table_name, ' does not open: ', t.table_comment)); END IF;
      SET @all = NULL;
      FOR i IN (SELECT index_name, column_name FROM information_schema.statistics WHERE t.engine = 'FROND' AND table_schema = 'test' AND table_name = t.table_name AND seq_in_index = 1 ORDER BY index_name <> 'PRIMARY') DO
        EXECUTE IMMEDIATE CONCAT('SELECT CONCAT(COUNT(*), ":", IFNULL(BIT_XOR(CRC32(id)), 0)) INTO @through FROM (SELECT id FROM \`', t.table_name, '\` FORCE INDEX (\`', i.index_name, '\`) ORDER BY \`', i.column_name, '\` LIMIT 1000000) q');
        SET @all = IFNULL(@all, @through);
        IF @all <> @through THEN INSERT INTO wrong VALUES (CONCAT(t.table_name, ' through ', i.index_name, ': ', @through, ' and not ', @all)); END IF;
      END FOR;
    END;
  END FOR;
  INSERT INTO wrong SELECT CONCAT('bank has ', SUM(balance), ' in ', COUNT(*), ' accounts') FROM bank HAVING SUM(balance) <> 100 * $accounts OR COUNT(*) <> $accounts;
  INSERT INTO wrong SELECT CONCAT('a tree without a table: ', t.tree_name) FROM information_schema.frond_trees t
    WHERE t.tree_name LIKE 'test/%' AND NOT EXISTS (SELECT 1 FROM information_schema.tables i WHERE i.table_schema = 'test' AND i.engine = 'FROND'
      AND i.table_name = SUBSTRING_INDEX(SUBSTRING_INDEX(SUBSTRING(t.tree_name, 6), '/', 1), '#P#', 1));
  INSERT INTO wrong SELECT CONCAT('a tree without a partition: ', t.tree_name) FROM information_schema.frond_trees t
    WHERE t.tree_name LIKE 'test/%#P#%' AND NOT EXISTS (SELECT 1 FROM information_schema.partitions i WHERE i.table_schema = 'test'
      AND CONCAT(i.table_name, '#P#', i.partition_name) = SUBSTRING_INDEX(SUBSTRING(t.tree_name, 6), '/', 1));
  SELECT what FROM wrong;
END//
SQL
}

# Prints what is wrong.
verify() {
    local table
    client -N -e "CALL verify()" || echo "verification failed"
    for table in $(client -N -e "SELECT table_name FROM information_schema.tables WHERE table_schema = 'test' AND engine = 'FROND'"); do
        client -N -e "CHECK TABLE $table EXTENDED" | awk -F'\t' '$NF != "OK"'
    done
    find "$FROND_DATA/test" -name '#sql*' -printf 'a file is left: %f\n'
}

kill_server() {
    local pid
    pid=$(cat "$FROND_DATA.run/pid")
    kill -9 "$pid"
    until has_ended "$pid"; do sleep 0.02; done
}

require_stock
"$server" stop >/dev/null
rm -rf "$work"
mkdir -p "$work"
FROND_SERVER_OPTIONS=$(server_options 0) "$server" start >/dev/null
prepare
RANDOM=$seed
for ((round = 1; round <= kills; round++)); do
    running=()
    for ((session = 1; session <= sessions; session++)); do
        statements "$((seed * 100000 + round))" "$session" | client --force >/dev/null 2>&1 &
        running+=($!)
    done
    bank_statements | client --force >/dev/null 2>&1 &
    running+=($!)
    client -e "CALL transfer(1000000)" >/dev/null 2>&1 &
    running+=($!)
    moment=$((RANDOM % 2500 + 100))
    sleep "$((moment / 1000)).$(printf %03d $((moment % 1000)))"
    kill_server
    wait "${running[@]}" || true
    FROND_SERVER_OPTIONS=$(server_options "$round") "$server" start >/dev/null
    wrong=$(verify)
    if [ -n "$wrong" ]; then
        echo "$wrong" >&2
        die "round=$round seed=$seed: killed after $moment ms; the server runs, its data is in $FROND_DATA"
    fi
done
tables=$(client -N -e "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = 'test'")
"$server" stop >/dev/null
say "$kills kills: every table and tree was the old or the new one; $tables tables at the end"
