//! Every promise in docs/guarantees.md names a test that is there.

use super::Complaint;
use super::tree::Tree;

const PAGE: &str = "docs/guarantees.md";

pub fn check(tree: &Tree) -> Vec<Complaint> {
    let Some(page) = tree.get(PAGE) else {
        return vec![Complaint::new(PAGE, "is not there")];
    };
    let mut complaints = Vec::new();
    for (index, line) in page.text.lines().enumerate() {
        let Some(proof) = proof(line) else { continue };
        let is_there = proof.split_once(": ").is_some_and(|(path, name)| {
            tree.get(path)
                .is_some_and(|file| file.text.contains(&format!("fn {name}(")))
        });
        if !is_there {
            complaints.push(Complaint::at(page, index, format!("no test {proof:?}")));
        }
    }
    complaints
}

/// The last cell of a table's row, unless it is a heading or the line below one.
fn proof(line: &str) -> Option<&str> {
    let cells = line.strip_prefix("| ")?.strip_suffix(" |")?;
    let (_, last) = cells.rsplit_once(" | ")?;
    (last != "test").then(|| last.trim_matches('`'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_promise_without_its_test_is_found() {
        let page = "| promise | test |\n|---|---|\n| a | `t.rs: holds` |\n| b | `t.rs: gone` |\n| c | soon |\n";
        let tree = Tree::of(&[(PAGE, page), ("t.rs", "fn holds() {}")]);
        let places: Vec<String> = check(&tree).into_iter().map(|c| c.place).collect();
        assert_eq!(places, ["docs/guarantees.md:4", "docs/guarantees.md:5"]);
    }
}
