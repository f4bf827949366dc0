//! The words of an expression.

use std::str::Chars;
use std::sync::Arc;

/// A word and the letter of the text at which it begins.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Token {
    pub(super) at: usize,
    pub(super) word: Word,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Word {
    Name(Arc<str>),
    /// Digits, as written.
    Int(String),
    Uint(String),
    Double(String),
    Text(Arc<str>),
    Bytes(Arc<[u8]>),
    Sign(&'static str),
    End,
}

/// Longer ones first.
const SIGNS: [&str; 24] = [
    "==", "!=", "<=", ">=", "&&", "||", "<", ">", "[", "]", "{", "}", "(", ")", ".", ",", "-", "!",
    "?", ":", "+", "*", "/", "%",
];

/// All words; nothing if some part of the text is none.
pub(super) fn words(text: &str) -> Option<Vec<Token>> {
    let letters: Vec<char> = text.chars().collect();
    let mut lexer = Lexer {
        letters: &letters,
        at: 0,
    };
    let mut tokens = Vec::new();
    loop {
        lexer.skip();
        let at = lexer.at;
        let word = lexer.word()?;
        let end = word == Word::End;
        tokens.push(Token { at, word });
        if end {
            return Some(tokens);
        }
    }
}

struct Lexer<'a> {
    letters: &'a [char],
    at: usize,
}

impl Lexer<'_> {
    fn peek(&self, ahead: usize) -> Option<char> {
        self.letters.get(self.at + ahead).copied()
    }

    fn starts_with(&self, text: &str) -> bool {
        text.chars()
            .enumerate()
            .all(|(ahead, c)| self.peek(ahead) == Some(c))
    }

    fn skip(&mut self) {
        loop {
            match self.peek(0) {
                Some('\t' | ' ' | '\r' | '\n' | '\u{c}') => self.at += 1,
                Some('/') if self.peek(1) == Some('/') => {
                    while self.peek(0).is_some_and(|c| c != '\n') {
                        self.at += 1;
                    }
                }
                _ => return,
            }
        }
    }

    fn word(&mut self) -> Option<Word> {
        let Some(first) = self.peek(0) else {
            return Some(Word::End);
        };
        if let Some(found) = self.quoted() {
            return found;
        }
        if first.is_ascii_alphabetic() || first == '_' {
            let from = self.at;
            while self
                .peek(0)
                .is_some_and(|c| c.is_ascii_alphanumeric() || c == '_')
            {
                self.at += 1;
            }
            let name: String = self.letters[from..self.at].iter().collect();
            return Some(Word::Name(name.into()));
        }
        let digit = |c: Option<char>| c.is_some_and(|c| c.is_ascii_digit());
        if first.is_ascii_digit() || (first == '.' && digit(self.peek(1))) {
            return Some(self.number());
        }
        let sign = SIGNS.into_iter().find(|sign| self.starts_with(sign))?;
        self.at += sign.len();
        Some(Word::Sign(sign))
    }

    fn digits(&mut self, kind: fn(&char) -> bool) -> String {
        let from = self.at;
        while self.peek(0).is_some_and(|c| kind(&c)) {
            self.at += 1;
        }
        self.letters[from..self.at].iter().collect()
    }

    fn number(&mut self) -> Word {
        let from = self.at;
        let hexadecimal =
            self.starts_with("0x") && self.peek(2).is_some_and(|c| c.is_ascii_hexdigit());
        if hexadecimal {
            self.at += 2;
            self.digits(char::is_ascii_hexdigit);
        } else {
            self.digits(char::is_ascii_digit);
        }
        let mut double = false;
        if !hexadecimal {
            let digit = |c: Option<char>| c.is_some_and(|c| c.is_ascii_digit());
            if self.peek(0) == Some('.') && digit(self.peek(1)) {
                double = true;
                self.at += 1;
                self.digits(char::is_ascii_digit);
            }
            let signed = usize::from(matches!(self.peek(1), Some('+' | '-')));
            if matches!(self.peek(0), Some('e' | 'E')) && digit(self.peek(1 + signed)) {
                double = true;
                self.at += 1 + signed;
                self.digits(char::is_ascii_digit);
            }
        }
        let text: String = self.letters[from..self.at].iter().collect();
        if double {
            return Word::Double(text);
        }
        if matches!(self.peek(0), Some('u' | 'U')) {
            self.at += 1;
            return Word::Uint(text);
        }
        Word::Int(text)
    }

    /// A text or bytes, if one begins here; within it is nothing if it is none.
    fn quoted(&mut self) -> Option<Option<Word>> {
        let mut ahead = 0;
        let bytes = matches!(self.peek(ahead), Some('b' | 'B'));
        ahead += usize::from(bytes);
        let raw = matches!(self.peek(ahead), Some('r' | 'R'));
        ahead += usize::from(raw);
        let quote = self.peek(ahead).filter(|c| matches!(c, '"' | '\''))?;
        self.at += ahead;
        let long = self.peek(1) == Some(quote) && self.peek(2) == Some(quote);
        let count = if long { 3 } else { 1 };
        self.at += count;
        let from = self.at;
        loop {
            let Some(c) = self.peek(0) else {
                return Some(None);
            };
            let ends = (0..count).all(|ahead| self.peek(ahead) == Some(quote));
            if ends {
                break;
            }
            if !long && matches!(c, '\n' | '\r') {
                return Some(None);
            }
            self.at += if c == '\\' && !raw { 2 } else { 1 };
        }
        let inner: String = self.letters[from..self.at].iter().collect();
        self.at += count;
        let inner = if raw {
            Some(inner.into_bytes())
        } else {
            unescaped(inner.chars(), bytes)
        };
        Some(inner.and_then(|inner| {
            if bytes {
                Some(Word::Bytes(inner.into()))
            } else {
                let text = String::from_utf8(inner).ok()?;
                Some(Word::Text(text.into()))
            }
        }))
    }
}

/// What escapes stand for; in bytes, `\x` and `\ooo` are one of them and not a letter.
fn unescaped(mut letters: Chars<'_>, bytes: bool) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    let push = |out: &mut Vec<u8>, c: char| {
        out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
    };
    while let Some(c) = letters.next() {
        if c != '\\' {
            push(&mut out, c);
            continue;
        }
        let escape = letters.next()?;
        let number = |radix: u32, digits: &str| u32::from_str_radix(digits, radix).ok();
        let code = match escape {
            'a' => 7,
            'b' => 8,
            'f' => 12,
            'n' => 10,
            'r' => 13,
            't' => 9,
            'v' => 11,
            '\\' | '\'' | '"' | '`' | '?' => u32::from(escape),
            'x' | 'X' => {
                let code = number(16, &take(&mut letters, 2)?)?;
                if bytes {
                    out.push(u8::try_from(code).ok()?);
                    continue;
                }
                code
            }
            '0'..='3' => {
                let rest = take(&mut letters, 2)?;
                let code = number(8, &format!("{escape}{rest}"))?;
                if bytes {
                    out.push(u8::try_from(code).ok()?);
                    continue;
                }
                code
            }
            'u' if !bytes => number(16, &take(&mut letters, 4)?)?,
            'U' if !bytes => number(16, &take(&mut letters, 8)?)?,
            _ => return None,
        };
        push(&mut out, char::from_u32(code)?);
    }
    Some(out)
}

fn take(letters: &mut Chars<'_>, count: usize) -> Option<String> {
    let text: String = letters.by_ref().take(count).collect();
    (text.chars().count() == count && text.chars().all(|c| c.is_ascii_hexdigit())).then_some(text)
}
