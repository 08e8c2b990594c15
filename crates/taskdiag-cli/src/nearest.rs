//! "Did you mean": the known name nearest to a misspelt one.

/// A clause ` (did you mean 'x'?)`, or nothing where no name is near.
pub fn hint<'a>(word: &str, names: impl IntoIterator<Item = &'a str>) -> String {
    let near = |a: &str, b: &str| strsim::damerau_levenshtein(a, b);
    let best = names.into_iter().map(|n| (near(word, n), n)).min();
    match best {
        // A third of the letters may be wrong, and two of a short word.
        Some((d, name)) if d <= (word.chars().count() / 3).max(2) && d < name.len() => {
            format!(" (did you mean '{name}'?)")
        }
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::hint;

    #[test]
    fn near_and_far() {
        assert_eq!(hint("comand", ["command", "comm"]), " (did you mean 'command'?)");
        assert_eq!(hint("zzzzzzzz", ["command", "comm"]), "");
    }
}
