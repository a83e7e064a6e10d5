//! A reverse proxy that serves an agent below a prefix, like those of Jupyter and Open OnDemand.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;

use parking_lot::Mutex;

pub(super) const PREFIX: &str = "/node/nid0001/proxy/1337";

pub(super) struct PrefixProxy {
    pub address: SocketAddr,
    /// Requested paths outside the prefix.
    pub unprefixed_paths: Arc<Mutex<Vec<String>>>,
}

impl PrefixProxy {
    pub(super) fn start(agent: String) -> PrefixProxy {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("a bound address");
        let strays: Arc<Mutex<Vec<String>>> = Arc::default();
        let seen = strays.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (agent, seen) = (agent.clone(), seen.clone());
                // A failed request is visible in the page.
                thread::spawn(move || forward(stream, &agent, &seen));
            }
        });
        PrefixProxy {
            address,
            unprefixed_paths: strays,
        }
    }
}

fn forward(client: TcpStream, agent: &str, strays: &Mutex<Vec<String>>) -> io::Result<()> {
    let mut lines = BufReader::new(client.try_clone()?);
    let mut first = String::new();
    lines.read_line(&mut first)?;
    let mut headers = String::new();
    while !headers.ends_with("\r\n\r\n") && lines.read_line(&mut headers)? > 0 {
        if headers == "\r\n" {
            break;
        }
    }
    let path = first.split(' ').nth(1).unwrap_or_default().to_owned();
    let Some(rest) = path.strip_prefix(PREFIX) else {
        strays.lock().push(path);
        return (&client).write_all(
            b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
        );
    };
    let kept = headers.lines().filter(|line| {
        let name = line
            .split(':')
            .next()
            .unwrap_or_default()
            .to_ascii_lowercase();
        !line.is_empty() && name != "host" && name != "connection"
    });
    let kept: String = kept.map(|line| format!("{line}\r\n")).collect();
    let mut server = TcpStream::connect(agent)?;
    write!(
        server,
        "GET {rest} HTTP/1.1\r\nHost: {agent}\r\nConnection: close\r\n{kept}\r\n"
    )?;
    let mut answer = server.try_clone()?;
    // If the browser closes its connection, close the other one too; otherwise the agent continues
    // to stream.
    let leaving = server.try_clone()?;
    thread::spawn(move || {
        let _ = lines.read(&mut [0]);
        let _ = leaving.shutdown(Shutdown::Both);
    });
    let copied = io::copy(&mut answer, &mut &client);
    let _ = client.shutdown(Shutdown::Both);
    copied.map(|_| ())
}
