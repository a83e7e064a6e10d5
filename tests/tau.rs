//! `tau_metric_proxy`, `tau_metric_proxy_run` and `tau_metric_client` under their own names, with TAU's behaviour.

#[path = "tau/options.rs"]
mod options;
#[path = "tau/proxy.rs"]
mod proxy;
#[path = "tau/user.rs"]
mod user;
#[path = "tau/wrapper.rs"]
mod wrapper;
