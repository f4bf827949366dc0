//! The one PEM text a DER value has here: 64 columns, LF, nothing before or after. Pure.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// Label of a certificate signing request.
pub(super) const REQUEST: &str = "CERTIFICATE REQUEST";
/// Label of a certificate.
pub(crate) const CERTIFICATE: &str = "CERTIFICATE";
const COLUMNS: usize = 64;

/// Encodes canonically.
pub(crate) fn encode(label: &str, der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let mut pem = format!("-----BEGIN {label}-----\n");
    let mut rest = text.as_str();
    while !rest.is_empty() {
        let (line, tail) = rest.split_at(rest.len().min(COLUMNS));
        pem.push_str(line);
        pem.push('\n');
        rest = tail;
    }
    pem.push_str("-----END ");
    pem.push_str(label);
    pem.push_str("-----\n");
    pem
}

/// Decodes a text only if it is byte for byte what [`encode`] makes of its content.
pub(super) fn decode(label: &str, text: &[u8]) -> Option<Vec<u8>> {
    let (der, rest) = decode_first(label, text)?;
    (rest.is_empty() && encode(label, &der).as_bytes() == text).then_some(der)
}

/// Decodes the block that a text begins with; returns what follows it.
pub(super) fn decode_first<'a>(label: &str, text: &'a [u8]) -> Option<(Vec<u8>, &'a [u8])> {
    let text = std::str::from_utf8(text).ok()?;
    let body = text.strip_prefix(&format!("-----BEGIN {label}-----\n"))?;
    let (body, rest) = body.split_once(&format!("-----END {label}-----\n"))?;
    let joined: String = body.lines().collect();
    let der = STANDARD.decode(joined).ok()?;
    Some((der, rest.as_bytes()))
}
