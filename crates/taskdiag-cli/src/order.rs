//! The keys of `--sort`.

use taskdiag::field::Set;
pub use taskdiag::view::Key;

use crate::exit::Exit;

/// The keys of `--sort`, with names in any case.
pub fn keys_in_any_case(set: &Set, items: Vec<&str>) -> Result<Vec<Key>, Exit> {
    let items: Vec<String> = items.into_iter().map(|i| crate::columns::tidied(set, i)).collect();
    keys(set, items.iter().map(String::as_str).collect())
}

/// The keys of `--sort`. Each is a column, with `-` before it if the largest value comes first.
pub fn keys(set: &Set, items: Vec<&str>) -> Result<Vec<Key>, Exit> {
    let key = |item: &str| {
        Key::parse(set, item)
            .ok_or_else(|| crate::columns::unknown(set, Key::name(item).1, " to sort by"))
    };
    items.into_iter().map(key).collect()
}
