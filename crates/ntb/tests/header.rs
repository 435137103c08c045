//! `abi` is what `kernel/include/crosslane_ntb.h` says: a C program prints the header's sizes, offsets and numbers.

use crosslane_ntb::abi;
use std::fmt::Write as _;
use std::mem::offset_of;
use std::path::Path;
use std::process::Command;

macro_rules! fields {
    ($out:ident, $c:literal, $rust:ident: $($field:ident),*) => {{
        writeln!($out.0, "{} {}", $c, size_of::<abi::$rust>()).unwrap();
        writeln!($out.1, "printf(\"{} %zu\\n\", sizeof(struct crosslane_ntb_{}));", $c, $c).unwrap();
        $(
            writeln!($out.0, "{}.{} {}", $c, stringify!($field), offset_of!(abi::$rust, $field)).unwrap();
            let field = stringify!($field);
            writeln!($out.1, "printf(\"{0}.{field} %zu\\n\", offsetof(struct crosslane_ntb_{0}, {field}));", $c).unwrap();
        )*
    }};
}

macro_rules! numbers {
    ($out:ident: $($c:literal $rust:expr),*) => {$(
        writeln!($out.0, "{} {}", $c, u64::from($rust)).unwrap();
        writeln!($out.1, "printf(\"{0} %llu\\n\", (unsigned long long)(unsigned)CROSSLANE_NTB_{0});", $c).unwrap();
    )*};
}

fn count(things: usize) -> u32 {
    things.try_into().unwrap()
}

#[test]
fn abi_is_the_header() {
    let mut out = (String::new(), String::new());
    fields!(out, "window", Window: inbound_max, inbound_len, outbound_len);
    fields!(out, "info", Info: version, windows, window, copy_max, port, peer_port);
    fields!(out, "translate", Translate: window, reserved, len);
    fields!(out, "range", Range: window, side, offset, len);
    fields!(out, "register", Register: index, value);
    fields!(out, "waker", Waker: socket, handle, word);
    fields!(out, "copy", CopyRequest: address, len, offset, over, failed);
    fields!(out, "event", Event: kind, reserved, doorbells, life);
    numbers!(out: "VERSION" abi::VERSION, "DOORBELLS" abi::DOORBELLS, "WINDOWS" count(abi::WINDOWS), "PADS" count(abi::PADS));
    numbers!(out: "INFO" abi::INFO, "TRANSLATE" abi::TRANSLATE, "CARVE" abi::CARVE, "TAKE_BACK" abi::TAKE_BACK, "LINK" abi::LINK);
    numbers!(out: "READ_PAD" abi::READ_PAD, "WRITE_PEER_PAD" abi::WRITE_PEER_PAD, "RING" abi::RING, "MASK" abi::MASK);
    numbers!(out: "WAKER" abi::WAKER, "DROP_WAKER" abi::DROP_WAKER, "BELL" abi::BELL, "COPY" abi::COPY, "SEGMENT_MAGIC" abi::SEGMENT_MAGIC);
    let source = format!(
        "#include <stddef.h>\n#include <stdio.h>\n#include \"crosslane_ntb.h\"\nint main(void) {{ {} return 0; }}\n",
        out.1
    );
    let folder = tempfile::tempdir().unwrap();
    let (c, program) = (folder.path().join("abi.c"), folder.path().join("abi"));
    std::fs::write(&c, source).unwrap();
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kernel/include");
    let compiled = Command::new("cc")
        .arg("-I")
        .arg(include)
        .arg(&c)
        .arg("-o")
        .arg(&program)
        .status()
        .expect("a C compiler");
    assert!(compiled.success());
    let printed = Command::new(program).output().unwrap();
    assert_eq!(String::from_utf8(printed.stdout).unwrap(), out.0);
}
