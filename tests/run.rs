//! `pegel run`: programs run as if they were not wrapped, and their calls are counted exactly.

#[path = "run/attach.rs"]
mod attach;
#[path = "run/by_agent.rs"]
mod by_agent;
#[path = "run/counts.rs"]
mod counts;
#[path = "run/heritage.rs"]
mod heritage;
#[path = "run/kills.rs"]
mod kills;
#[path = "run/languages.rs"]
mod languages;
#[path = "run/rights.rs"]
mod rights;
#[path = "run/same.rs"]
mod same;
#[path = "run/streams.rs"]
mod streams;
#[path = "run/terminal.rs"]
mod terminal;
#[path = "run/visible.rs"]
mod visible;
#[path = "run/wrapped.rs"]
mod wrapped;
