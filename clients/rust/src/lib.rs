//! A Kafka broker for tests: `barnabas test-server`, steered over its control API.

use std::env;
use std::fmt;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use serde_json::{json, Value};

/// Why a broker did not start, or refused a request. `?` makes it a `Box<dyn Error>`, and what `anyhow` and the like have.
pub struct Error(Box<dyn std::error::Error + Send + Sync>);

const WAY_OUT: &str =
    "install it with `pip install barnabas`, or name the command in BARNABAS_COMMAND, as `uvx barnabas`";

pub type Result<T> = std::result::Result<T, Error>;

impl fmt::Display for Error {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(to)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(to) // what `unwrap` and a test that returns it print
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source()
    }
}

impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Self {
        Error(error.into())
    }
}

impl From<serde_json::Error> for Error {
    fn from(error: serde_json::Error) -> Self {
        Error(error.into())
    }
}

impl From<String> for Error {
    fn from(text: String) -> Self {
        Error(text.into())
    }
}

/// One broker, or with `--brokers` a cluster. It ends when this is dropped, and with this process at the latest.
pub struct Broker {
    process: Child,
    /// `host:port` for a client's bootstrap servers; of a cluster with commas between.
    pub bootstrap: String,
    pub control_url: String,
    /// With `--security`: `protocol`, `mechanism`, `passwords` by user, `ca`, `certificates` by user (paths of PEM files).
    pub security: Value,
}

impl Broker {
    /// Starts a broker with the arguments of `barnabas test-server` and waits until it answers.
    pub fn start(options: &[&str]) -> Result<Broker> {
        Broker::start_by(&env::var("BARNABAS_COMMAND").unwrap_or_else(|_| "barnabas".into()), options)
    }

    /// Starts a broker as `start` does, by a command that is not that of the environment.
    pub fn start_by(command: &str, options: &[&str]) -> Result<Broker> {
        let mut words = command.split_whitespace();
        let mut process = Command::new(words.next().unwrap_or("barnabas"))
            .args(words)
            .arg("test-server")
            .args(options)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("cannot start the broker by `{command}`: {error}; {WAY_OUT}"))?;
        let mut line = String::new();
        if let Some(output) = process.stdout.take() {
            BufReader::new(output).read_line(&mut line)?;
        }
        if line.is_empty() {
            return Err(format!("the broker did not start: {}", process.wait()?).into());
        }
        let said: Value = serde_json::from_str(&line)?;
        let word = |name: &str| said[name].as_str().unwrap_or_default().to_string();
        Ok(Broker { process, bootstrap: word("bootstrap_servers"), control_url: word("control_url"), security: said["security"].clone() })
    }

    /// Sends a request to the control API, as `control("POST", "/v1/faults", Some(json!({...})))`, and returns its answer.
    pub fn control(&self, method: &str, path: &str, body: Option<Value>) -> Result<Value> {
        let request = ureq::request(method, &format!("{}{}", self.control_url, path));
        let answer = match body {
            Some(value) => request.send_string(&value.to_string()),
            None => request.call(),
        };
        let text = match answer {
            Ok(response) => response.into_string()?,
            Err(ureq::Error::Status(_, response)) => {
                return Err(format!("{method} {path}: {}", response.into_string()?.trim()).into())
            }
            Err(error) => return Err(Error(error.into())),
        };
        Ok(if text.is_empty() { Value::Null } else { serde_json::from_str(&text)? })
    }

    /// Waits up to ten seconds until a topic holds at least so many records.
    pub fn wait_for_records(&self, topic: &str, count: usize) -> Result<()> {
        self.control("GET", &format!("/v1/wait/records?topic={topic}&count={count}"), None).map(drop)
    }

    /// Waits up to ten seconds until a group is stable.
    pub fn wait_for_group(&self, group: &str) -> Result<()> {
        self.control("GET", &format!("/v1/wait/group?group={group}"), None).map(drop)
    }

    /// Keeps what the broker holds now under a name.
    pub fn snapshot(&self, name: &str) -> Result<()> {
        self.control("POST", "/v1/snapshots", Some(json!({ "name": name }))).map(drop)
    }

    /// Goes back to a snapshot. Connections are cut, the address stays.
    pub fn restore(&self, name: &str) -> Result<()> {
        self.control("POST", &format!("/v1/snapshots/{name}/restore"), None).map(drop)
    }

    /// Goes back to what the broker was started with.
    pub fn reset(&self) -> Result<()> {
        self.control("POST", "/v1/reset", None).map(drop)
    }

    /// The nodes of a cluster that was started with `--brokers`, and its active controller.
    pub fn cluster(&self) -> Result<Value> {
        self.control("GET", "/v1/cluster", None)
    }

    /// Ends a node as `kill -9` does; it stays down.
    pub fn kill_node(&self, node: u32) -> Result<()> {
        self.on_node(node, "kill", None)
    }

    /// Stops a node cleanly, which moves what it leads to others first; it stays down.
    pub fn stop_node(&self, node: u32) -> Result<()> {
        self.on_node(node, "stop", None)
    }

    /// Starts a node that is down, at its old address, and waits until it serves.
    pub fn start_node(&self, node: u32) -> Result<()> {
        self.on_node(node, "start", None)
    }

    /// Cuts a node off from all others: nothing arrives in either direction; if so asked, from clients too.
    pub fn isolate_node(&self, node: u32, clients: bool) -> Result<()> {
        self.on_node(node, "isolate", Some(json!({ "clients": clients })))
    }

    /// Lets a node that was cut off reach the others again.
    pub fn rejoin_node(&self, node: u32) -> Result<()> {
        self.on_node(node, "rejoin", None)
    }

    fn on_node(&self, node: u32, act: &str, body: Option<Value>) -> Result<()> {
        self.control("POST", &format!("/v1/cluster/nodes/{node}/{act}"), body).map(drop)
    }

    /// Makes a topic in a cluster and waits until all brokers know its leaders.
    pub fn create_topic(&self, topic: &str, partitions: u32) -> Result<()> {
        self.control("POST", &format!("/v1/cluster/topics/{topic}"), Some(json!({ "partitions": partitions }))).map(drop)
    }

    /// The leader of a partition, -1 for none.
    pub fn leader(&self, topic: &str, partition: u32) -> Result<i64> {
        let answer = self.control("GET", &format!("/v1/cluster/leaders/{topic}"), None)?;
        Ok(answer["leaders"][partition.to_string()].as_i64().unwrap_or(-1))
    }

    /// Has a replica lead a partition, by Kafka's own requests, and waits until all brokers know it.
    pub fn move_leader(&self, topic: &str, partition: u32, leader: u32) -> Result<()> {
        let path = format!("/v1/cluster/leaders/{topic}/{partition}");
        self.control("PUT", &path, Some(json!({ "leader": leader }))).map(drop)
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        drop(self.process.stdin.take()); // whereupon it ends
        let _ = self.process.wait();
    }
}
