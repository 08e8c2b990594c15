//! "Did you mean": suggests the known name that is nearest to a misspelt one.

/// A clause ` (did you mean 'x'?)`, or nothing if no name is near.
pub fn hint<'a>(word: &str, names: impl IntoIterator<Item = &'a str>) -> String {
    let near = taskdiag::field::nearest(word, names);
    near.map_or_else(String::new, |name| format!(" (did you mean '{name}'?)"))
}

#[cfg(test)]
mod tests {
    use super::hint;

    #[test]
    fn only_a_name_that_is_near_is_suggested() {
        assert_eq!(hint("comand", ["command", "comm"]), " (did you mean 'command'?)");
        assert_eq!(hint("usr", ["psr", "user", "uss"]), " (did you mean 'user'?)");
        assert_eq!(hint("zzzzzzzz", ["command", "comm"]), "");
    }
}
