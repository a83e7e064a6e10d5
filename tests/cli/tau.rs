//! `tau_metric_proxy`, `tau_metric_proxy_run` and `tau_metric_client` under their own names, with
//! TAU's behaviour.

mod options;
mod proxy;
mod user;
mod wrapper;
