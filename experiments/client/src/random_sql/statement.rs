//! Random statements on random tables, whose answers do not depend on the plan.
//!
//! Left out, because their answers legitimately depend on the order in which rows are met: LIMIT without a whole order, updates
//! of several rows that move unique keys onto each other, IGNORE with such changes, MIN and MAX of texts that are equal but not
//! the same.

use frond_load::random::Random;

use super::schema::Table;

#[derive(Clone, Debug)]
pub(crate) struct Statement {
    pub(crate) connection: usize,
    pub(crate) text: String,
    /// The order of its rows is part of the answer.
    pub(crate) is_ordered: bool,
}

const ISOLATION_LEVELS: [&str; 4] = ["READ UNCOMMITTED", "READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"];

pub(crate) fn statements(random: &mut Random, tables: &[Table], count: usize, connections: usize) -> Vec<Statement> {
    let mut statements = Vec::new();
    let mut add = |connection: usize, text: String, is_ordered: bool| {
        statements.push(Statement { connection, text, is_ordered });
    };
    for connection in 0..connections {
        let level = random.pick(&ISOLATION_LEVELS);
        add(connection, format!("SET SESSION TRANSACTION ISOLATION LEVEL {level}"), false);
    }
    for table in tables {
        for _ in 0..random.below(6) {
            add(0, insert(random, table), false);
        }
    }
    for _ in 0..count {
        let connection = random.below(connections as u64) as usize;
        let table = random.pick(tables).clone();
        let (text, is_ordered) = statement(random, &table, tables, connections == 1);
        add(connection, text, is_ordered);
    }
    for connection in 0..connections {
        add(connection, "COMMIT".into(), false);
    }
    for table in tables {
        add(0, format!("SELECT * FROM {}", table.name), false);
        for index in &table.indexes {
            add(0, format!("SELECT * FROM {} FORCE INDEX ({index})", table.name), false);
        }
        add(0, format!("SELECT COUNT(*) FROM {}", table.name), false);
    }
    // Indexes may have gone meanwhile: the same error on both sides.
    statements
}

fn statement(random: &mut Random, table: &Table, tables: &[Table], with_ddl: bool) -> (String, bool) {
    let name = &table.name;
    let text = match random.below(34) {
        0..=6 => insert(random, table),
        7..=10 => update(random, table),
        11..=13 => delete(random, table),
        14..=20 => return select(random, table),
        21 | 22 => aggregate(random, table),
        23 => join(random, table, random_other(tables, name)),
        24 | 25 => "BEGIN".into(),
        26 => "COMMIT".into(),
        27 => "ROLLBACK".into(),
        28 => "SAVEPOINT s".into(),
        29 => (*random.pick(&["ROLLBACK TO SAVEPOINT s", "RELEASE SAVEPOINT s"])).into(),
        30 => locking(random, table),
        _ if with_ddl => ddl(random, table),
        _ => insert(random, table),
    };
    (text, false)
}

fn random_other<'a>(tables: &'a [Table], name: &str) -> &'a Table {
    tables.iter().find(|table| table.name != name).unwrap_or(&tables[0])
}

fn insert(random: &mut Random, table: &Table) -> String {
    let count = random.between(1, 5);
    let rows: Vec<String> = (0..count).map(|_| table.row(random)).collect();
    let values = format!("INTO {} VALUES {}", table.name, rows.join(", "));
    match random.below(6) {
        0 => format!("INSERT IGNORE {values}"),
        1 => format!("REPLACE {values}"),
        2 => {
            let column = table.column(random);
            // A row of one unique key at most is met, or which one is up to the engine.
            let one = table.row(random);
            let changed = column.value(random);
            format!("INSERT INTO {} VALUES {one} ON DUPLICATE KEY UPDATE {} = {changed}", table.name, column.name)
        }
        _ => format!("INSERT {values}"),
    }
}

fn update(random: &mut Random, table: &Table) -> String {
    let column = table.column(random);
    let (name, wanted) = (&table.name, predicate(random, table));
    if column.is_number() && random.chance(40) {
        // So far that no row moves to where another one comes from.
        let distance = random.between(1_000, 900_000);
        return format!("UPDATE {name} SET {c} = {c} + {distance} WHERE {wanted}", c = column.name);
    }
    let value = column.value(random);
    let other = table.column(random);
    if other.name != column.name && random.chance(30) {
        let second = other.value(random);
        return format!("UPDATE {name} SET {} = {value}, {} = {second} WHERE {wanted}", column.name, other.name);
    }
    let order = whole_order(random, table)
        .map_or(String::new(), |order| format!(" ORDER BY {order} LIMIT {}", random.between(1, 3)));
    format!("UPDATE {name} SET {} = {value} WHERE {wanted}{order}", column.name)
}

fn delete(random: &mut Random, table: &Table) -> String {
    let wanted = predicate(random, table);
    let order = whole_order(random, table)
        .map_or(String::new(), |order| format!(" ORDER BY {order} LIMIT {}", random.between(1, 3)));
    format!("DELETE FROM {} WHERE {wanted}{order}", table.name)
}

/// An order without ties, sometimes, where there is one.
fn whole_order(random: &mut Random, table: &Table) -> Option<String> {
    if table.key.is_empty() || random.chance(60) {
        return None;
    }
    let direction = *random.pick(&["", " DESC"]);
    let first = table.column(random).name.clone();
    let rest = table.key.iter().filter(|name| **name != first).map(|name| format!("{name}{direction}"));
    Some(std::iter::once(format!("{first}{direction}")).chain(rest).collect::<Vec<_>>().join(", "))
}

fn select(random: &mut Random, table: &Table) -> (String, bool) {
    let wanted = predicate(random, table);
    let columns = if random.chance(50) {
        "*".to_string()
    } else {
        let (one, two) = (table.column(random).name.clone(), table.column(random).name.clone());
        format!("{one}, {two} AS second")
    };
    let hint = if table.indexes.is_empty() || random.chance(50) {
        String::new()
    } else {
        format!(" FORCE INDEX ({})", random.pick(&table.indexes))
    };
    match whole_order(random, table) {
        Some(order) => {
            let limit = if random.chance(50) { format!(" LIMIT {}", random.between(1, 6)) } else { String::new() };
            (format!("SELECT {columns} FROM {}{hint} WHERE {wanted} ORDER BY {order}{limit}", table.name), true)
        }
        None => (format!("SELECT {columns} FROM {}{hint} WHERE {wanted}", table.name), false),
    }
}

fn aggregate(random: &mut Random, table: &Table) -> String {
    let (column, group) = (table.column(random), table.column(random));
    let wanted = predicate(random, table);
    match random.below(4) {
        0 => format!("SELECT COUNT(*), COUNT({}) FROM {} WHERE {wanted}", column.name, table.name),
        1 => format!("SELECT COUNT(DISTINCT {}) FROM {} WHERE {wanted}", column.name, table.name),
        2 if !column.is_text() => {
            format!("SELECT MIN({c}), MAX({c}) FROM {} WHERE {wanted}", table.name, c = column.name)
        }
        2 => format!(
            "SELECT COUNT(*) FROM {} WHERE {c} = (SELECT MAX({c}) FROM {})",
            table.name,
            table.name,
            c = column.name
        ),
        _ => format!("SELECT COUNT(*) FROM {} WHERE {wanted} GROUP BY {}", table.name, group.name),
    }
}

fn join(random: &mut Random, one: &Table, two: &Table) -> String {
    let (a, b) = (one.column(random), two.column(random));
    format!(
        "SELECT COUNT(*), COUNT(y.{}) FROM {} x LEFT JOIN {} y ON x.{} = y.{} AND y.id > {}",
        b.name,
        one.name,
        two.name,
        a.name,
        b.name,
        random.between(-5, 10)
    )
}

fn locking(random: &mut Random, table: &Table) -> String {
    let mode = *random.pick(&["FOR UPDATE", "LOCK IN SHARE MODE", "FOR UPDATE NOWAIT"]);
    format!("SELECT * FROM {} WHERE {} {mode}", table.name, predicate(random, table))
}

fn ddl(random: &mut Random, table: &Table) -> String {
    let name = &table.name;
    match random.below(11) {
        0 => format!("TRUNCATE TABLE {name}"),
        1 | 2 => format!("ALTER TABLE {name} ADD INDEX extra{} ({})", random.below(3), table.new_index(random)),
        3 => format!("ALTER TABLE {name} DROP INDEX extra{}", random.below(3)),
        4 => format!("ALTER TABLE {name} ADD COLUMN added INT DEFAULT 3, DROP COLUMN IF EXISTS added"),
        5 if !table.indexes.is_empty() => format!("ALTER TABLE {name} DROP INDEX {}", random.pick(&table.indexes)),
        6 => format!("ALTER TABLE {name} FORCE"),
        7 => format!("SELECT COUNT(*) FROM {name}"),
        8 => {
            let (number, columns) = (random.below(3), table.new_index(random));
            format!(
                "ALTER TABLE {name} ADD COLUMN added INT DEFAULT 3 INVISIBLE, ADD INDEX extra{number} ({columns}, added)"
            )
        }
        9 => format!("ALTER TABLE {name} DROP COLUMN added"),
        _ => format!("ALTER TABLE {name} ADD UNIQUE INDEX extra{} ({})", random.below(3), table.new_index(random)),
    }
}

fn predicate(random: &mut Random, table: &Table) -> String {
    let one = comparison(random, table);
    match random.below(5) {
        0 | 1 => format!("{one} AND {}", comparison(random, table)),
        2 => format!("{one} OR {}", comparison(random, table)),
        _ => one,
    }
}

fn comparison(random: &mut Random, table: &Table) -> String {
    let column = table.column(random);
    let name = &column.name;
    match random.below(9) {
        0 => format!("{name} IS NULL"),
        // Written out: where the connection's collation does not tell the bounds of a BETWEEN apart, the optimizer takes it for an equality
        // in a reference by index, for any engine, although the column's collation tells them apart.
        1 if column.is_text() => format!("({name} >= {} AND {name} <= {})", column.bound(random), column.bound(random)),
        1 => format!("{name} BETWEEN {} AND {}", column.bound(random), column.bound(random)),
        2 => format!("{name} IN ({}, {}, {})", column.bound(random), column.bound(random), column.value(random)),
        3 if column.is_text() => format!("{name} LIKE '{}'", random.pick(&["a%", "A%", "%b", "_", "zz", "a_"])),
        4 => format!("{name} <=> {}", column.value(random)),
        _ => format!("{name} {} {}", random.pick(&["=", "<", "<=", ">", ">=", "<>", "="]), column.bound(random)),
    }
}
