//! The words of a label selector.

/// One word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Token {
    Error,
    End,
    Close,
    Comma,
    Not,
    DoubleEquals,
    Equals,
    Greater,
    Identifier,
    In,
    Less,
    NotEquals,
    NotIn,
    Open,
}

/// All words of `text`, each with how it is written; the last is [`Token::End`].
pub(super) fn scan(text: &str) -> Vec<(Token, String)> {
    let special = |c: char| matches!(c, '=' | '!' | '(' | ')' | ',' | '>' | '<');
    let blank = |c: char| matches!(c, ' ' | '\t' | '\r' | '\n');
    let mut words = Vec::new();
    let mut rest = text;
    loop {
        rest = rest.trim_start_matches(blank);
        let Some(first) = rest.chars().next() else {
            break;
        };
        if special(first) {
            let two = rest.get(..2).and_then(symbol);
            let one = rest.get(..1).and_then(symbol);
            let (token, length) = match (two, one) {
                (Some(token), _) => (token, 2),
                (None, Some(token)) => (token, 1),
                (None, None) => (Token::Error, 1),
            };
            let (word, after) = rest.split_at(length);
            words.push((token, word.to_owned()));
            rest = after;
        } else {
            let length = rest
                .find(|c: char| special(c) || blank(c))
                .unwrap_or(rest.len());
            let (word, after) = rest.split_at(length);
            let token = match word {
                "in" => Token::In,
                "notin" => Token::NotIn,
                _ => Token::Identifier,
            };
            words.push((token, word.to_owned()));
            rest = after;
        }
    }
    words.push((Token::End, String::new()));
    words
}

fn symbol(text: &str) -> Option<Token> {
    Some(match text {
        ")" => Token::Close,
        "," => Token::Comma,
        "!" => Token::Not,
        "==" => Token::DoubleEquals,
        "=" => Token::Equals,
        ">" => Token::Greater,
        "<" => Token::Less,
        "!=" => Token::NotEquals,
        "(" => Token::Open,
        _ => return None,
    })
}
