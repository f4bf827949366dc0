//! The wire format: numbered fields one after another.

use super::Unread;

/// A field as it stands on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Field<'b> {
    Varint(u64),
    Fixed64(u64),
    Bytes(&'b [u8]),
    Fixed32(u32),
}

impl Field<'_> {
    /// The number of its form.
    pub(super) fn wire(&self) -> u8 {
        match self {
            Self::Varint(_) => 0,
            Self::Fixed64(_) => 1,
            Self::Bytes(_) => 2,
            Self::Fixed32(_) => 5,
        }
    }
}

/// Reads the fields of one message.
#[derive(Debug, Clone)]
pub(super) struct Reader<'b> {
    rest: &'b [u8],
}

impl<'b> Reader<'b> {
    /// Reads from the beginning of `message`.
    pub(super) fn new(message: &'b [u8]) -> Self {
        Self { rest: message }
    }

    /// The next field and its number.
    pub(super) fn next(&mut self) -> Result<Option<(u32, Field<'b>)>, Unread> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let tag = self.varint()?;
        let number = u32::try_from(tag >> 3).map_err(|_| Unread::Wire("illegal tag"))?;
        if number == 0 {
            return Err(Unread::Wire("illegal tag 0"));
        }
        let field = match tag & 7 {
            0 => Field::Varint(self.varint()?),
            1 => {
                let bytes = self.take(8)?.try_into().map_err(|_| Unread::Short)?;
                Field::Fixed64(u64::from_le_bytes(bytes))
            }
            2 => {
                let length = usize::try_from(self.varint()?).map_err(|_| Unread::Short)?;
                Field::Bytes(self.take(length)?)
            }
            5 => {
                let bytes = self.take(4)?.try_into().map_err(|_| Unread::Short)?;
                Field::Fixed32(u32::from_le_bytes(bytes))
            }
            _ => return Err(Unread::Wire("illegal wireType")),
        };
        Ok(Some((number, field)))
    }

    /// The next number of a packed list.
    pub(super) fn packed(&mut self) -> Result<Option<u64>, Unread> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        self.varint().map(Some)
    }

    fn varint(&mut self) -> Result<u64, Unread> {
        let mut number = 0u64;
        for (at, byte) in self.rest.iter().take(10).enumerate() {
            number |= u64::from(byte & 0x7f) << (7 * at);
            if byte & 0x80 == 0 {
                self.rest = &self.rest[at + 1..];
                return Ok(number);
            }
        }
        Err(if self.rest.len() < 10 {
            Unread::Short
        } else {
            Unread::Wire("integer overflow")
        })
    }

    fn take(&mut self, length: usize) -> Result<&'b [u8], Unread> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(Unread::Short)?;
        self.rest = rest;
        Ok(taken)
    }
}
