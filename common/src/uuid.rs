//! Identifiers that nothing else has: of objects, tokens and requests.

use rand::Rng;

/// A UUID drawn by chance.
pub fn random_uuid(rng: &mut impl Rng) -> String {
    let mut bytes: [u8; 16] = rng.random();
    // Version and variant, as RFC 9562 places them.
    bytes[6] = (bytes[6] & 0x0f) | 0x40;
    bytes[8] = (bytes[8] & 0x3f) | 0x80;
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    [0..8, 8..12, 12..16, 16..20, 20..32]
        .map(|range| hex.get(range).unwrap_or_default().to_owned())
        .join("-")
}
