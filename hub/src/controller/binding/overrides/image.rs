//! Names of images: read by the grammar of container registries, changed part by part, and read again.
//!
//! Pure. Nothing is added that is not there: no registry, no `library/`, no `latest`. A digest goes only with
//! the tag; a result that is no name of an image is refused.

use common::api::override_policy::{ImageComponent, OverriderOperator};

/// Longest name of a repository with its registry.
const NAME_MAX: usize = 255;
const TAG_MAX: usize = 128;
const INVALID: &str = "invalid reference format";
/// Fewest digits of a digest.
const DIGEST_MIN: usize = 32;

/// Why an image cannot be changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ImageError {
    /// The template's image is none.
    #[error("failed to parse image value({image}), error: {why}")]
    Parse {
        /// The image.
        image: String,
        /// Why it is none.
        why: &'static str,
    },
    /// The result is none.
    #[error("{before:?} would become {after:?}, which is no image: {why}")]
    Result {
        /// The image of the template.
        before: String,
        /// What it would become.
        after: String,
        /// Why that is none.
        why: &'static str,
    },
    /// The value can be no tag or digest.
    #[error("{0:?} is neither a tag nor a digest")]
    Tag(String),
}

/// The parts of an image's name; what is absent is empty.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Image<'a> {
    host: &'a str,
    repository: &'a str,
    tag: &'a str,
    digest: &'a str,
}

/// `image` with one part changed.
pub(super) fn changed(
    image: &str,
    component: ImageComponent,
    operator: OverriderOperator,
    value: &str,
) -> Result<String, ImageError> {
    let parsed = Image::parse(image).map_err(|why| ImageError::Parse {
        image: image.to_owned(),
        why,
    })?;
    let change = |part: &str| match operator {
        OverriderOperator::Add => format!("{part}{value}"),
        OverriderOperator::Replace => value.to_owned(),
        OverriderOperator::Remove => String::new(),
    };
    let after = match component {
        ImageComponent::Registry => {
            let host = change(parsed.host);
            Image {
                host: &host,
                ..parsed
            }
            .to_text()
        }
        ImageComponent::Repository => {
            let repository = change(parsed.repository);
            Image {
                repository: &repository,
                ..parsed
            }
            .to_text()
        }
        ImageComponent::Tag => {
            let tag = change(if parsed.tag.is_empty() {
                parsed.digest
            } else {
                parsed.tag
            });
            let removed = operator == OverriderOperator::Remove;
            let (tag, digest) = match tag.as_str() {
                tag if removed || is_tag(tag) => (tag, ""),
                digest if is_digest(digest) => ("", digest),
                other => return Err(ImageError::Tag(other.to_owned())),
            };
            Image {
                tag,
                digest,
                ..parsed
            }
            .to_text()
        }
    };
    // What is written into a name may not be read as a tag or a digest.
    let kept = |result: &Image<'_>| (result.tag, result.digest) == (parsed.tag, parsed.digest);
    let why = match Image::parse(&after) {
        Ok(result) if component == ImageComponent::Tag || kept(&result) => return Ok(after),
        Ok(_) => INVALID,
        Err(why) => why,
    };
    Err(ImageError::Result {
        before: image.to_owned(),
        after,
        why,
    })
}

impl<'a> Image<'a> {
    fn parse(text: &'a str) -> Result<Self, &'static str> {
        if text.is_empty() {
            return Err("repository name must have at least one component");
        }
        let (rest, digest) = text.split_once('@').unwrap_or((text, ""));
        let path = rest.rfind('/').map_or(0, |slash| slash + 1);
        let (name, tag) = match rest[path..].split_once(':') {
            Some((last, tag)) => (&rest[..path + last.len()], tag),
            None => (rest, ""),
        };
        let has = |mark: char, part: &str| text.contains(mark) && part.is_empty();
        if (!digest.is_empty() && !is_digest(digest))
            || (!tag.is_empty() && !is_tag(tag))
            || has('@', digest)
            || rest.ends_with(':')
        {
            return Err(INVALID);
        }
        let (host, repository) = match name.split_once('/') {
            Some((host, repository)) if is_host_like(host) => (host, repository),
            _ => ("", name),
        };
        if !(host.is_empty() || is_host(host)) {
            return Err(INVALID);
        }
        if !is_repository(repository) {
            let lower = repository.to_ascii_lowercase();
            return Err(match lower != repository && is_repository(&lower) {
                true => "repository name must be lowercase",
                false => INVALID,
            });
        }
        if name.len() > NAME_MAX {
            return Err("repository name must not be more than 255 characters");
        }
        Ok(Self {
            host,
            repository,
            tag,
            digest,
        })
    }

    fn to_text(&self) -> String {
        let mut text = String::new();
        for (before, part, after) in [
            ("", self.host, "/"),
            ("", self.repository, ""),
            (":", self.tag, ""),
            ("@", self.digest, ""),
        ] {
            if !part.is_empty() {
                text.extend([before, part, after]);
            }
        }
        text
    }
}

/// Whether what stands before the first slash is a host rather than a part of the repository, which has no capitals.
fn is_host_like(text: &str) -> bool {
    text.contains(['.', ':']) || text == "localhost" || text.bytes().any(|b| b.is_ascii_uppercase())
}

fn is_host(text: &str) -> bool {
    let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, port)) => {
            let is_address = address.bytes().all(|b| b.is_ascii_hexdigit() || b == b':');
            if address.is_empty() || !is_address {
                return false;
            }
            ("", port)
        }
        None => text
            .find(':')
            .map_or((text, ""), |colon| text.split_at(colon)),
    };
    let is_label = |label: &str| {
        let inner = |b: u8| b.is_ascii_alphanumeric() || b == b'-';
        !label.is_empty()
            && label.bytes().all(inner)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let is_port = port.is_empty()
        || port
            .strip_prefix(':')
            .is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()));
    is_port && (text.starts_with('[') || host.split('.').all(is_label))
}

/// Small letters and digits, with one of `.`, `_`, `__` or any number of `-` between them.
fn is_repository(text: &str) -> bool {
    let is_word = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let is_component = |component: &str| {
        let is_separator = |between: &str| {
            matches!(between, "." | "_" | "__") || between.bytes().all(|b| b == b'-')
        };
        let words = |c: char| c.is_ascii() && is_word(c as u8);
        component.starts_with(words)
            && component.ends_with(words)
            && component.split(words).all(is_separator)
    };
    text.split('/').all(is_component)
}

/// `[\w][\w.-]{0,127}`.
fn is_tag(text: &str) -> bool {
    let word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    let rest = |b: u8| word(b) || matches!(b, b'.' | b'-');
    (1..=TAG_MAX).contains(&text.len())
        && text.bytes().all(rest)
        && text.bytes().next().is_some_and(word)
}

/// `algorithm:hex`, where the algorithm is words with one of `-_+.` between them.
fn is_digest(text: &str) -> bool {
    let Some((algorithm, hex)) = text.split_once(':') else {
        return false;
    };
    let is_word = |word: &str| {
        word.starts_with(|c: char| c.is_ascii_alphabetic())
            && word.bytes().all(|b| b.is_ascii_alphanumeric())
    };
    algorithm.split(['-', '_', '+', '.']).all(is_word)
        && hex.len() >= DIGEST_MIN
        && hex.bytes().all(|b| b.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests;
