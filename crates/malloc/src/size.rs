//! The size from which on an allocation is large.

/// Environment variable with that size: bytes, or a number followed by K, M or G.
pub const VARIABLE: &core::ffi::CStr = c"CROSSLANE_MALLOC";
/// Smallest accepted size, bytes: a buffer costs a descriptor and several system calls.
pub const LEAST: usize = 16 * 1024;

/// Reads a size; at least [`LEAST`].
pub fn parse(text: &[u8]) -> Option<usize> {
    let (digits, shift) = match text.split_last()? {
        (b'K' | b'k', digits) => (digits, 10),
        (b'M' | b'm', digits) => (digits, 20),
        (b'G' | b'g', digits) => (digits, 30),
        _ => (text, 0),
    };
    let number: usize =
        core::str::from_utf8(digits).ok().filter(|text| !text.starts_with('+'))?.parse().ok()?;
    Some(number.checked_mul(1 << shift)?.max(LEAST))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_is_parsed_and_nothing_else() {
        assert_eq!(parse(b"65536"), Some(65536));
        assert_eq!(parse(b"64K"), Some(65536));
        assert_eq!(parse(b"2m"), Some(2 << 20));
        assert_eq!(parse(b"1G"), Some(1 << 30));
        assert_eq!(parse(b"1"), Some(LEAST));
        for bad in ["", "K", "-1", "+1", "1.5M", "64KB", "99999999999999999999", "18446744073709551615K"] {
            assert_eq!(parse(bad.as_bytes()), None, "{bad}");
        }
    }
}
