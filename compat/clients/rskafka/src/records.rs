//! The records and their checks: the same in every language.

use std::collections::{BTreeMap, HashMap, HashSet};

pub const PARTITIONS: i32 = 3;
pub const TIME_ZERO_MS: i64 = 1_700_000_000_000;
const KEYS: i64 = 997;

/// What a case says when it fails, or cannot be asked of this client.
#[derive(Debug)]
pub enum Ending {
    Fail(String),
    Skip(String),
}

pub type Outcome<T> = Result<T, Ending>;

pub fn fail<T>(text: impl std::fmt::Display) -> Outcome<T> {
    Err(Ending::Fail(text.to_string()))
}

impl<E: std::error::Error> From<E> for Ending {
    fn from(error: E) -> Self {
        Ending::Fail(error.to_string())
    }
}

pub struct Content {
    pub key: Vec<u8>,
    pub value: Vec<u8>,
    pub headers: BTreeMap<String, Vec<u8>>,
}

fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0u32, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |value, _| (value >> 1) ^ (0xedb8_8320 * (value & 1)))
    })
}

/// The record that has this number.
pub fn content(number: i64) -> Content {
    let key = format!("key-{}", number % KEYS);
    let head = format!("{number}:{key}");
    let value = format!("{head}:{:08x}:{}", crc32(head.as_bytes()), "x".repeat((number % 64) as usize));
    let headers = BTreeMap::from([
        ("n".to_owned(), (number as u32).to_be_bytes().to_vec()),
        ("text".to_owned(), "žluťoučký kůň".as_bytes().to_vec()),
    ]);
    Content { key: key.into_bytes(), value: value.into_bytes(), headers }
}

/// The client has no partitioner: a key's number decides.
pub fn partition_of(number: i64) -> i32 {
    (number % KEYS) as i32 % PARTITIONS
}

/// Takes what was read as it comes; `finish` says whether it is what was written.
#[derive(Default)]
pub struct Check {
    placed: BTreeMap<(i32, i64), i64>,
    numbers: HashSet<i64>,
}

impl Check {
    pub fn add(&mut self, partition: i32, offset: i64, read: &Content, with_headers: bool) -> Outcome<i64> {
        let place = format!("partition {partition} offset {offset}");
        let text = String::from_utf8_lossy(&read.value);
        let number: i64 = match text.split(':').next().and_then(|front| front.parse().ok()) {
            Some(number) => number,
            None => return fail(format!("{place}: value {text}")),
        };
        let wanted = content(number);
        if read.key != wanted.key || read.value != wanted.value {
            return fail(format!("{place}: key or value of record {number} is not as written"));
        }
        if with_headers && read.headers != wanted.headers {
            return fail(format!("{place}: headers {:?}", read.headers));
        }
        if self.placed.insert((partition, offset), number).is_some_and(|known| known != number) {
            return fail(format!("{place}: record {number}, but earlier another one"));
        }
        self.numbers.insert(number);
        Ok(number)
    }

    /// Each wanted number is at one offset, nothing else is there, order and partitions are right.
    pub fn finish(&self, wanted: impl Iterator<Item = i64>) -> Outcome<()> {
        let wanted: HashSet<i64> = wanted.collect();
        if self.numbers != wanted || self.placed.len() != wanted.len() {
            return fail(format!(
                "{} of {} records, in {} places",
                self.numbers.intersection(&wanted).count(),
                wanted.len(),
                self.placed.len()
            ));
        }
        let (mut last, mut homes) = (HashMap::new(), HashMap::new());
        for (&(partition, offset), &number) in &self.placed {
            if last.insert(partition, number).is_some_and(|before| number <= before) {
                return fail(format!("partition {partition} offset {offset}: {number} is out of order"));
            }
            if *homes.entry(number % KEYS).or_insert(partition) != partition {
                return fail(format!("key-{} is in two partitions", number % KEYS));
            }
        }
        Ok(())
    }
}
