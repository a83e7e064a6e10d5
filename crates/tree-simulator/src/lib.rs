//! Children of a parent that exist only as connections, for tests and benchmarks. A
//! [`ScriptedChild`] sends exactly the messages that the test chooses, valid or not; so does a
//! [`ScriptedParent`]. A
//! [`ChildSimulation`] keeps many well-behaved children connected, which send ticks and answer
//! requests for samples and aggregations.

mod aggregate_answer;
mod child_codec;
mod counting_connector;
mod scripted_child;
mod scripted_parent;
mod select_answer;
mod simulated_child;
mod simulated_values;
mod simulation;

pub use counting_connector::WireBytes;
pub use scripted_child::{ScriptedChild, hello};
pub use scripted_parent::{ScriptedParent, welcome};
pub use simulated_values::SERIES_PER_CHILD;
pub use simulation::{ChildSimulation, SimulationPlan};
