//! The text of a label selector, read token by token.
//!
//! ```text
//! selector    := "" | requirement *( "," requirement )
//! requirement := key | "!" key | key "in" values | key "notin" values
//!              | key ( "=" | "==" | "!=" | ">" | "<" ) [ value ]
//! values      := "(" [ value ] *( "," [ value ] ) ")"
//! ```
//!
//! Space, tab, carriage return and newline may stand between tokens. `in` and `notin` are operators only
//! behind a key; elsewhere they are keys and values as any other. Where no value stands, the value is
//! empty.

use super::label::{LabelOperator, LabelRequirement};
use crate::object::names::label_key;
use crate::object::status::{Result, Status};

/// The operators that have values, as messages list them.
const OPERATORS: &str = "in, notin, =, ==, !=, gt, lt";

/// A piece of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token<'a> {
    End,
    Close,
    Comma,
    Not,
    DoubleEquals,
    Equals,
    Greater,
    Less,
    NotEquals,
    Open,
    /// A key, a value, `in` or `notin`.
    Word(&'a str),
}

impl<'a> Token<'a> {
    fn text(self) -> &'a str {
        match self {
            Self::End => "",
            Self::Close => ")",
            Self::Comma => ",",
            Self::Not => "!",
            Self::DoubleEquals => "==",
            Self::Equals => "=",
            Self::Greater => ">",
            Self::Less => "<",
            Self::NotEquals => "!=",
            Self::Open => "(",
            Self::Word(word) => word,
        }
    }
}

/// Reads one text, with one token of look-ahead.
#[derive(Debug)]
pub(super) struct Parser<'a> {
    rest: &'a str,
    next: Token<'a>,
}

impl<'a> Parser<'a> {
    pub(super) fn new(selector: &'a str) -> Self {
        let mut parser = Self { rest: selector, next: Token::End };
        parser.take();
        parser
    }

    /// The next token; behind the last one the end, for ever.
    fn take(&mut self) -> Token<'a> {
        let rest = self.rest.trim_start_matches([' ', '\t', '\r', '\n']);
        let is_special = |c: char| "=!(),><".contains(c);
        let (token, length) = match rest.as_bytes() {
            [] => (Token::End, 0),
            [b'=', b'=', ..] => (Token::DoubleEquals, 2),
            [b'!', b'=', ..] => (Token::NotEquals, 2),
            [b'=', ..] => (Token::Equals, 1),
            [b'!', ..] => (Token::Not, 1),
            [b'(', ..] => (Token::Open, 1),
            [b')', ..] => (Token::Close, 1),
            [b',', ..] => (Token::Comma, 1),
            [b'>', ..] => (Token::Greater, 1),
            [b'<', ..] => (Token::Less, 1),
            _ => {
                let ends = |c: char| is_special(c) || [' ', '\t', '\r', '\n'].contains(&c);
                let length = rest.find(ends).unwrap_or(rest.len());
                (Token::Word(rest.split_at(length).0), length)
            }
        };
        self.rest = rest.split_at(length).1;
        std::mem::replace(&mut self.next, token)
    }

    /// The requirements, in the order of the text.
    pub(super) fn parse(mut self) -> Result<Vec<LabelRequirement>> {
        let mut requirements = Vec::new();
        loop {
            match self.next {
                Token::Word(_) | Token::Not => {}
                Token::End if requirements.is_empty() => return Ok(requirements),
                other if requirements.is_empty() => {
                    return found(other, ", expected: !, identifier, or 'end of string'");
                }
                other => return found(other, ", expected: identifier after ','"),
            }
            let requirement = self.requirement().map_err(|status| {
                Status::bad_request(format!("unable to parse requirement: {status}"))
            })?;
            requirements.push(requirement);
            match self.take() {
                Token::End => return Ok(requirements),
                Token::Comma => {}
                other => return found(other, ", expected: ',' or 'end of string'"),
            }
        }
    }

    fn requirement(&mut self) -> Result<LabelRequirement> {
        let mut token = self.take();
        let is_negated = token == Token::Not;
        if is_negated {
            token = self.take();
        }
        let Token::Word(key) = token else { return found(token, ", expected: identifier") };
        let wrong = label_key(key);
        if !wrong.is_empty() {
            // The field's path, which is empty, is told as Go tells it.
            let message = format!("<nil>: Invalid value: {key:?}: {}", wrong.join("; "));
            return Err(Status::bad_request(message));
        }
        if is_negated {
            return LabelRequirement::new(key, LabelOperator::DoesNotExist, Vec::new());
        }
        if matches!(self.next, Token::End | Token::Comma) {
            return LabelRequirement::new(key, LabelOperator::Exists, Vec::new());
        }
        let operator = match self.take() {
            Token::Word("in") => LabelOperator::In,
            Token::Word("notin") => LabelOperator::NotIn,
            Token::Equals => LabelOperator::Equals,
            Token::DoubleEquals => LabelOperator::DoubleEquals,
            Token::NotEquals => LabelOperator::NotEquals,
            Token::Greater => LabelOperator::GreaterThan,
            Token::Less => LabelOperator::LessThan,
            other => return found(other, &format!(", expected: {OPERATORS}")),
        };
        let values = match operator {
            LabelOperator::In | LabelOperator::NotIn => self.values()?,
            _ => vec![self.value()?],
        };
        LabelRequirement::new(key, operator, values)
    }

    /// `(a,b)`. Between two commas, and between a comma and a parenthesis, stands the empty value.
    fn values(&mut self) -> Result<Vec<String>> {
        let token = self.take();
        if token != Token::Open {
            return found(token, " expected: '('");
        }
        if !matches!(self.next, Token::Word(_) | Token::Comma | Token::Close) {
            return found(self.next, ", expected: ',', ')' or identifier");
        }
        let mut values = Vec::new();
        loop {
            if let Token::Word(word) = self.next {
                values.push(word.to_owned());
                self.take();
                if !matches!(self.next, Token::Comma | Token::Close) {
                    return found(self.next, ", expected: ',' or ')'");
                }
            } else {
                values.push(String::new());
            }
            match self.take() {
                Token::Comma => {}
                Token::Close => return Ok(values),
                other => return found(other, ", expected: ',', or identifier"),
            }
        }
    }

    fn value(&mut self) -> Result<String> {
        if matches!(self.next, Token::End | Token::Comma) {
            return Ok(String::new());
        }
        match self.take() {
            Token::Word(value) => Ok(value.to_owned()),
            other => found(other, ", expected: identifier"),
        }
    }
}

fn found<T>(token: Token<'_>, what_else: &str) -> Result<T> {
    Err(Status::bad_request(format!("found '{}'{what_else}", token.text())))
}
