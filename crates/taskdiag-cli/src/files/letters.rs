//! The letters of `-F`: which values there are, each in a line of its own.

use taskdiag::field::{FILES, Field};

use crate::exit::Exit;

/// Which values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fields {
    letters: String,
    /// NUL after each value; lines are then whole processes and files.
    nul: bool,
}

/// The columns that lines are made from, in addition to those that every file has.
const MADE_FROM: &[(char, &str)] = &[
    ('p', "task.pid"),
    ('g', "task.pgid"),
    ('R', "task.ppid"),
    ('c', "command"),
    ('u', "task.uid"),
    ('L', "task.user"),
    ('f', "fd"),
    ('a', "access"),
    ('l', "lock"),
    ('t', "type"),
    ('G', "flags"),
    ('d', "device"),
    ('D', "dev"),
    ('r', "rdev"),
    ('s', "size"),
    ('o', "offset"),
    ('i', "inode"),
    ('k', "nlink"),
    ('P', "protocol"),
    ('n', "name"),
    ('T', "sockstate"),
];

/// Nearly all letters. As in lsof, the device number of a device file (r) is shown only on request.
const DEFAULT: &str = "pKMgRcuLfaltGdDsoikPnT";

/// All letters that lsof takes. C, F, N, S, z and Z have no value here or in lsof on Linux; m is
/// the line between two lists.
const TAKEN: &str = "acCdDfFGgiKklLmMnNopPrRsStTuzZ0";

impl Fields {
    /// The fields for these letters. Without letters, nearly all fields.
    pub fn of_lsof(text: &str) -> Result<Fields, Exit> {
        if let Some(c) = text.chars().find(|c| !TAKEN.contains(*c)) {
            let all: String = TAKEN.chars().filter(|c| !"CFNSzZ".contains(*c)).collect();
            return Err(Exit::Usage(format!("-F{text}: there is no field '{c}'; there are {all}")));
        }
        let nul = text.contains('0');
        let letters: String = text.chars().filter(|c| *c != '0').collect();
        // NUL alone chooses no values.
        let letters = if letters.is_empty() { String::from(DEFAULT) } else { letters };
        Ok(Fields { letters, nul })
    }
    /// Both.
    #[must_use]
    pub fn with(&self, other: &Fields) -> Fields {
        Fields { letters: format!("{}{}", self.letters, other.letters), nul: self.nul || other.nul }
    }
    /// Whether this value is requested.
    pub fn has(&self, letter: char) -> bool {
        // Without it, a value could not be assigned to a file.
        letter == 'p' || self.letters.contains(letter)
    }
    /// Does NUL end each value?
    pub fn is_nul(&self) -> bool {
        self.nul
    }
    /// The fields that they are made from.
    pub fn fields(&self) -> impl Iterator<Item = &'static Field> {
        let all = MADE_FROM.iter().filter(|(l, _)| self.has(*l));
        all.filter_map(|(_, name)| FILES.find(name)).map(|named| named.field)
    }
}

/// The output of `-F ?`.
pub const HELP: &str = "\
letters of -F, and what comes after them in a line:
  p  process id, before the values of its files
  K  thread id, of a thread with files of its own, or with -K
  M  name of that thread
  g  process group
  R  parent
  c  name of the command
  u  uid
  L  name of the user
  f  descriptor, or cwd, rtd, txt, mem, DEL
  a  access: r, w, u for both
  l  lock: r and w of a part, R and W of all
  t  type
  G  flags of open(2)
  d  what stands for the device
  D  device of the file system, as in stat(2)
  r  device that the file is
  s  size
  o  offset
  i  inode
  k  links
  P  protocol
  n  name
  T  state and queues of a socket
  m  the line between two lists of -r
  0  NUL ends each value
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_add_up() {
        let of = |text: &str| Fields::of_lsof(text).expect("they are right");
        assert!(of("").has('n') && of("").has('T') && !of("").has('r') && !of("").is_nul());
        assert!(of("0").has('n') && of("0").is_nul());
        assert!(of("fn0").has('n') && !of("fn0").has('t') && of("fn0").has('p'));
        let both = of("r").with(&of("0"));
        assert!(both.has('r') && both.has('n') && both.is_nul());
        for all in ["acdDfGgiKklLmMnopPrRstTu0", "CFNSzZ"] {
            assert!(Fields::of_lsof(all).is_ok(), "{all}");
        }
        for bad in ["q", "5", "pf%"] {
            assert!(Fields::of_lsof(bad).is_err(), "{bad}");
        }
    }
}
