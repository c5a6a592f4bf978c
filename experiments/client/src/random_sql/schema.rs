//! Random tables: columns of all common types, keys of all kinds, partitions sometimes; and values that fit them.
//!
//! Values come from small pools, so that rows meet: equal keys, equal but for case or trailing spaces, NULLs, ends of ranges.

use frond_load::random::Random;

const TYPES: [Type; 24] = [
    Type("TINYINT", Pool::Integer),
    Type("SMALLINT UNSIGNED", Pool::Natural),
    Type("MEDIUMINT", Pool::Integer),
    Type("INT", Pool::Integer),
    Type("INT UNSIGNED", Pool::Natural),
    Type("BIGINT", Pool::Integer),
    Type("DECIMAL(10,3)", Pool::Decimal),
    Type("DOUBLE", Pool::Decimal),
    Type("FLOAT", Pool::Decimal),
    Type("DATE", Pool::Date),
    Type("DATETIME(3)", Pool::Date),
    Type("TIMESTAMP NULL", Pool::Date),
    Type("TIME", Pool::Time),
    Type("YEAR", Pool::Year),
    Type("CHAR(5)", Pool::Text),
    Type("VARCHAR(20)", Pool::Text),
    Type("VARCHAR(20) COLLATE utf8mb4_bin", Pool::Text),
    Type("VARCHAR(300) CHARACTER SET latin1", Pool::Text),
    Type("VARCHAR(20) COLLATE utf8mb4_unicode_nopad_ci", Pool::Text),
    Type("VARBINARY(12)", Pool::Text),
    Type("TEXT", Pool::Text),
    Type("ENUM('a','b','zz','')", Pool::Member),
    Type("SET('a','b','zz')", Pool::Member),
    Type("BIT(10)", Pool::Natural),
];

/// Of rows that lie apart.
const LONG: Type = Type("LONGTEXT", Pool::Long);

#[derive(Clone, Copy, Debug)]
struct Type(&'static str, Pool);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pool {
    Integer,
    Natural,
    Decimal,
    Date,
    Time,
    Year,
    Text,
    Member,
    Long,
}

impl Pool {
    fn draw(self, random: &mut Random) -> String {
        let of = |random: &mut Random, values: &[&str]| (*random.pick(values)).to_string();
        match self {
            Pool::Integer if random.chance(15) => of(random, &["-128", "127", "0", "-1"]),
            Pool::Integer => random.between(-5, 30).to_string(),
            Pool::Natural => random.between(0, 30).to_string(),
            Pool::Decimal => of(random, &["0", "-0.5", "1", "1.5", "2.125", "-1000.001", "999999.999", "3"]),
            Pool::Date => of(
                random,
                &["'2000-01-01'", "'2020-02-29'", "'2038-01-18'", "'1999-12-31'", "'2020-03-01'", "'2011-11-11'"],
            ),
            Pool::Time => of(random, &["'00:00:00'", "'12:34:56'", "'-10:00:00'", "'838:59:59'", "'23:59:59'"]),
            Pool::Year => of(random, &["1901", "2000", "2026", "2155", "1970"]),
            Pool::Text => of(
                random,
                &["''", "'a'", "'A'", "'b'", "'ab'", "'aB '", "'a '", "'ä'", "'zz'", "'abc'", "'ABCD'", "' '"],
            ),
            Pool::Member => of(random, &["'a'", "'b'", "'zz'", "''"]),
            // Different where they are compared for an order.
            Pool::Long => of(
                random,
                &[
                    "''",
                    "'a'",
                    "REPEAT('a', 70000)",
                    "REPEAT('ab', 70000)",
                    "REPEAT('AbC', 100000)",
                    "REPEAT('zz', 20000)",
                ],
            ),
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Column {
    pub(crate) name: String,
    kind: Type,
    is_nullable: bool,
}

impl Column {
    /// A value as SQL.
    pub(crate) fn value(&self, random: &mut Random) -> String {
        if self.is_nullable && random.chance(12) { "NULL".into() } else { self.kind.1.draw(random) }
    }

    /// A value to compare with.
    pub(crate) fn bound(&self, random: &mut Random) -> String {
        self.kind.1.draw(random)
    }

    pub(crate) fn is_text(&self) -> bool {
        matches!(self.kind.1, Pool::Text | Pool::Long)
    }

    pub(crate) fn is_number(&self) -> bool {
        matches!(self.kind.0, "INT" | "BIGINT" | "DECIMAL(10,3)" | "DOUBLE")
    }

    /// As a part of a key.
    fn part(&self, random: &mut Random) -> String {
        let length = match self.kind.0 {
            "TEXT" | "LONGTEXT" => "(7)",
            name if name.starts_with("VARCHAR") && random.chance(25) => "(2)",
            _ => "",
        };
        let direction = if random.chance(20) { " DESC" } else { "" };
        format!("{}{length}{direction}", self.name)
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Table {
    pub(crate) name: String,
    pub(crate) columns: Vec<Column>,
    /// Names of the primary key's columns.
    pub(crate) key: Vec<String>,
    /// Names of the other keys.
    pub(crate) indexes: Vec<String>,
    clauses: Vec<String>,
    tail: String,
}

impl Table {
    /// The CREATE TABLE, in the session's default engine.
    pub(crate) fn definition(&self) -> String {
        let columns = self.columns.iter().map(|column| {
            let null = if column.is_nullable || column.kind.0.ends_with("NULL") { "" } else { " NOT NULL" };
            format!("{} {}{null}", column.name, column.kind.0)
        });
        let parts: Vec<String> = columns.chain(self.clauses.iter().cloned()).collect();
        format!("CREATE TABLE {} ({}){}", self.name, parts.join(", "), self.tail)
    }

    pub(crate) fn column(&self, random: &mut Random) -> &Column {
        random.pick(&self.columns)
    }

    /// A parenthesised row for VALUES.
    pub(crate) fn row(&self, random: &mut Random) -> String {
        let values: Vec<String> = self.columns.iter().map(|column| column.value(random)).collect();
        format!("({})", values.join(", "))
    }

    pub(crate) fn new_index(&self, random: &mut Random) -> String {
        let count = random.between(1, 3) as usize;
        let mut parts: Vec<(String, String)> = Vec::new();
        for _ in 0..count {
            let column = self.column(random);
            if parts.iter().all(|(name, _)| *name != column.name) {
                parts.push((column.name.clone(), column.part(random)));
            }
        }
        parts.into_iter().map(|(_, part)| part).collect::<Vec<_>>().join(", ")
    }
}

/// With `long` rows in each.
pub(crate) fn tables(random: &mut Random, long: bool) -> Vec<Table> {
    let count = random.between(1, 2);
    (0..count).map(|number| table(random, format!("t{number}"), long)).collect()
}

fn table(random: &mut Random, name: String, long: bool) -> Table {
    let mut columns = vec![Column { name: "id".into(), kind: Type("INT", Pool::Integer), is_nullable: false }];
    for number in 0..random.between(2, 6) {
        let kind = *random.pick(&TYPES);
        let is_nullable = kind.0.ends_with("NULL") || random.chance(60);
        columns.push(Column { name: format!("c{number}"), kind, is_nullable });
    }
    if long {
        // Before and behind others.
        for number in 0..random.between(1, 2) {
            let at = random.between(2, columns.len() as i64) as usize;
            columns.insert(at, Column { name: format!("long{number}"), kind: LONG, is_nullable: random.chance(50) });
        }
    }
    let mut table =
        Table { name, columns, key: Vec::new(), indexes: Vec::new(), clauses: Vec::new(), tail: String::new() };
    match random.below(10) {
        0 => {}
        1..=5 => table.key = vec!["id".into()],
        _ => {
            let column = table.columns[1].clone();
            table.columns[1].is_nullable = false;
            if column.kind.0 != "TEXT" && !column.kind.0.ends_with("NULL") {
                table.key = if random.chance(50) { vec![column.name, "id".into()] } else { vec![column.name] };
            } else {
                table.key = vec!["id".into()];
            }
        }
    }
    if !table.key.is_empty() {
        table.clauses.push(format!("PRIMARY KEY ({})", table.key.join(", ")));
    }
    let is_partitioned = table.key.first().is_some_and(|first| first == "id") && random.chance(20);
    for number in 0..random.below(5) {
        let parts = table.new_index(random);
        let is_unique = !is_partitioned && random.chance(25);
        let kind = if is_unique { "UNIQUE KEY" } else { "KEY" };
        table.clauses.push(format!("{kind} k{number} ({parts})"));
        table.indexes.push(format!("k{number}"));
    }
    if is_partitioned {
        table.tail = (*random.pick(&[
            " PARTITION BY HASH (id) PARTITIONS 3",
            " PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (5), PARTITION p1 VALUES LESS THAN MAXVALUE)",
            " PARTITION BY KEY (id) PARTITIONS 2",
        ]))
        .into();
    }
    table
}
