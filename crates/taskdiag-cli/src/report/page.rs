//! Puts the page together, and writes it.
//!
//! The page has one style and one script, which are the same in every page, and data. The data
//! comes from processes, which may be hostile. So it is only in one block that no browser runs. The
//! block contains no `<`, so nothing in it can end the block. The script shows it as text. As a
//! second protection, the page has a policy (`Content-Security-Policy`) that lets a browser run
//! only this script, and load nothing.

use std::io::{self, Write as _};
use std::path::Path;

use crate::exit::{Exit, shown};
use crate::output::sink;
use crate::replace::replace;

const STYLE: &str = include_str!("page/page.css");
const BODY: &str = include_str!("page/page.html");
/// One script in several files. Each may use functions of earlier ones.
const SCRIPT: &str = concat!(
    include_str!("page/base.js"),
    include_str!("page/table.js"),
    include_str!("page/map.js"),
    include_str!("page/timeline.js"),
    include_str!("page/start.js"),
);

/// The hashes of the style and the script that the policy allows. A test checks them.
const STYLE_HASH: &str = "sha256-Q0YsTWareyv5TUq1fG8Ux7vBWTQ3nF92Wx9Bt1E5RNQ=";
const SCRIPT_HASH: &str = "sha256-4ho0qg/QD6LvYWSOdeqwDAcqyYWvUeeXP3Whb9sDU2g=";

/// The page with this data, which is JSON.
pub fn page(data: &[u8]) -> Vec<u8> {
    let policy = format!(
        "default-src 'none'; script-src '{SCRIPT_HASH}'; style-src '{STYLE_HASH}'; base-uri 'none'; form-action 'none'"
    );
    let head = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{policy}\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <meta name=\"referrer\" content=\"no-referrer\">\n\
         <title>taskdiag report</title>\n<style>{STYLE}</style>\n</head>\n<body>\n{BODY}\
         <script type=\"application/json\" id=\"data\">"
    );
    let mut out = head.into_bytes();
    out.reserve(data.len() + SCRIPT.len() + 100);
    // In JSON, `<` occurs only in strings, where \u003c means the same.
    for (i, piece) in data.split(|b| *b == b'<').enumerate() {
        if i > 0 {
            out.extend_from_slice(b"\\u003c");
        }
        out.extend_from_slice(piece);
    }
    out.extend_from_slice(b"</script>\n<script>");
    out.extend_from_slice(SCRIPT.as_bytes());
    out.extend_from_slice(b"</script>\n</body>\n</html>\n");
    out
}

/// Write the page to a file, or to standard output.
pub fn write(page: &[u8], output: Option<&Path>) -> Result<(), Exit> {
    let Some(path) = output.filter(|p| p.as_os_str() != "-") else {
        return Ok(sink::write_all(page)?);
    };
    write_to(path, page).map_err(|e| not_written(path, &e))
}

/// Whether the page could not be written to this file, before anything is read.
pub fn check(output: Option<&Path>) -> Result<(), Exit> {
    match output.filter(|p| p.as_os_str() != "-") {
        Some(path) => crate::replace::check(path).map_err(|e| not_written(path, &e)),
        None => Ok(()),
    }
}

fn not_written(path: &Path, e: &io::Error) -> Exit {
    match e.kind() {
        io::ErrorKind::InvalidInput => Exit::Usage(format!(
            "-o {}: {e}; without -o, the page goes to standard output",
            shown(path)
        )),
        _ => Exit::Output(io::Error::other(format!("-o {}: {e}", shown(path)))),
    }
}

/// Replace a file.
fn write_to(path: &Path, page: &[u8]) -> io::Result<()> {
    crate::aside::answers(path)?;
    // Other users must not read arguments that /proc may hide from them.
    replace(path, 0o600, |file| {
        file.write_all(page)?;
        file.sync_all()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use base64::Engine;
    use std::process::{Command, Stdio};

    /// The hash in the form of a policy. A program of coreutils computes it, so that no library is
    /// needed only for this test.
    fn hash(text: &str) -> String {
        let mut child = Command::new("sha256sum")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("coreutils has sha256sum");
        child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        let said = child.wait_with_output().unwrap().stdout;
        let digit =
            |i: usize| u8::from_str_radix(std::str::from_utf8(&said[i..i + 2]).unwrap(), 16);
        let bytes: Vec<u8> = (0..64).step_by(2).map(|i| digit(i).unwrap()).collect();
        format!("sha256-{}", base64::engine::general_purpose::STANDARD.encode(bytes))
    }

    #[test]
    fn the_policy_names_this_style_and_this_script() {
        assert_eq!(STYLE_HASH, hash(STYLE), "put the right one into STYLE_HASH");
        assert_eq!(SCRIPT_HASH, hash(SCRIPT), "put the right one into SCRIPT_HASH");
    }

    #[test]
    fn nothing_in_the_data_ends_its_block() {
        let page = String::from_utf8(page(br#"{"a":"</script><script>x</script><!--<script>"}"#));
        let page = page.unwrap();
        let data = page.split_once("id=\"data\">").unwrap().1;
        let (data, rest) = data.split_once("</script>\n").unwrap();
        assert!(!data.contains('<'), "{data}");
        assert!(rest.starts_with("<script>"));
        let value: serde_json::Value = serde_json::from_str(data).unwrap();
        assert_eq!(value["a"], "</script><script>x</script><!--<script>");
    }

    #[test]
    fn the_page_loads_nothing() {
        for text in [STYLE, BODY, SCRIPT] {
            for word in ["url(", "@import", "src=", "href=\"http", "fetch(", "innerHTML", "eval("] {
                assert!(!text.contains(word), "{word}");
            }
            assert!(!text.contains("</script") && !text.contains("</style"));
        }
    }
}
