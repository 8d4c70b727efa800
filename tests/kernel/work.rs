//! What the workload does: a function of who does it and how often he did, so that the process that
//! checks the store knows what every transaction must have been without being told.

use std::fmt;

use crate::support::random::Random;

/// Names one transaction: it is the transaction's metadata, and the beginning of its values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Token {
    /// The process.
    pub session: u64,
    /// The thread in it.
    pub thread: u64,
    /// Its transactions, counted from 1.
    pub number: u64,
}

impl fmt::Display for Token {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{}.{}.{}", self.session, self.thread, self.number)
    }
}

impl Token {
    pub fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.split('.').map(|part| part.parse().ok());
        let mut next = || numbers.next().flatten();
        Some(Self { session: next()?, thread: next()?, number: next()? })
    }

    fn random(self) -> Random {
        let Self { session, thread, number } = self;
        let mut random = Random::new(session << 40 | thread << 32 | number);
        random.next();
        random
    }

    pub fn plan(self) -> Plan {
        let mut random = self.random();
        match random.below(12) {
            0..=3 => Plan::Puts(vec![format!("s/{}", random.below(40))]),
            4..=6 => {
                let first = random.below(20);
                let keys = (0..random.between(2, 7)).map(|n| format!("m/{}", (first + n * 3) % 20));
                Plan::Puts(keys.collect())
            }
            7..=8 => Plan::Swap(format!("c/{}", random.below(4))),
            9..=10 => {
                Plan::Leased { key: format!("e/{}", random.below(12)), short: random.one_in(3) }
            }
            _ => Plan::Delete("m/1"),
        }
    }

    /// The key that is written where the plan is not to be done.
    pub fn mark(self) -> String {
        format!("l/{}", self.thread)
    }

    /// The lease of a plan that has one.
    pub fn lease(self) -> i64 {
        i64::try_from(self.session << 32 | self.thread << 24 | self.number).unwrap()
    }

    /// The value of `key`.
    pub fn value(self, key: &str) -> Vec<u8> {
        let mut random = self.random();
        let bytes = match random.below(40) {
            0 => random.between(4_000, 24_000),
            _ => random.below(500),
        };
        let mut value = format!("{self}|{key}|").into_bytes();
        while value.len() < usize::try_from(bytes).unwrap() {
            value.extend(random.next().to_be_bytes());
        }
        value
    }
}

/// What a transaction does.
#[derive(Clone, Debug)]
pub enum Plan {
    /// Puts these keys.
    Puts(Vec<String>),
    /// Puts the key if it was not changed since it was read, else the mark. The metadata says what
    /// revision had been read.
    Swap(String),
    /// Puts the key with a lease of its own.
    Leased { key: String, short: bool },
    /// Deletes what has this prefix, and puts the mark.
    Delete(&'static str),
}

/// What a watch was told of one revision, in short.
pub fn digest<'a>(events: impl Iterator<Item = (bool, &'a [u8], &'a [u8])>) -> String {
    let (mut hash, mut count) = (0xcbf2_9ce4_8422_2325_u64, 0);
    let mut add = |bytes: &[u8]| {
        for byte in bytes {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    };
    for (put, key, value) in events {
        count += 1;
        add(&[u8::from(put)]);
        add(key);
        add(&[0]);
        add(value);
    }
    format!("{count}:{hash:x}")
}
