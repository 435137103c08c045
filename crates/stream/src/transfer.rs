//! The Sockets Direct Protocol's ways to move data; a program, a rule or the measuring chooser picks one of them.

use thiserror::Error;

/// How a stream moves the bytes that its program sends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Transfer {
    /// For each send the way with the least measured time ([`crate::chooser`]).
    #[default]
    Auto = 0,
    /// Through the ring: the sender copies in, the receiver copies out.
    Bcopy = 1,
    /// The sender announces its registered buffer and the receiver copies the bytes from there. Sends from other memory are
    /// Bcopy.
    ReadZcopy = 2,
    /// The receiver announces its registered buffer and the sender copies the bytes there.
    WriteZcopy = 3,
}

/// A text that is the name of no way.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("`{0}` is none of auto, bcopy, read-zcopy, write-zcopy")]
pub struct NoTransfer(pub String);

impl Transfer {
    /// All ways, in the order of their numbers.
    pub const ALL: [Self; 4] = [Self::Auto, Self::Bcopy, Self::ReadZcopy, Self::WriteZcopy];

    /// The name in configuration and output.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Bcopy => "bcopy",
            Self::ReadZcopy => "read-zcopy",
            Self::WriteZcopy => "write-zcopy",
        }
    }

    /// The way with this number, as socket options and shared memory contain it.
    pub fn from_number(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|way| *way as u32 == number)
    }
}

impl core::str::FromStr for Transfer {
    type Err = NoTransfer;

    fn from_str(text: &str) -> Result<Self, NoTransfer> {
        Self::ALL.into_iter().find(|way| way.name() == text).ok_or_else(|| NoTransfer(text.to_owned()))
    }
}

impl core::fmt::Display for Transfer {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transfer_names_and_numbers_lead_back() {
        for way in Transfer::ALL {
            assert_eq!(way.name().parse(), Ok(way));
            assert_eq!(Transfer::from_number(way as u32), Some(way));
        }
        assert_eq!(Transfer::from_number(4), None);
        assert!("zcopy".parse::<Transfer>().unwrap_err().to_string().contains("`zcopy`"));
    }
}
