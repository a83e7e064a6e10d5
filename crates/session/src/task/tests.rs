//! Tests on machines made of files.

mod accounting;
mod any_content;
mod cgroups;
mod describing;
mod fake_machine;
