//! The cases with rskafka.

mod records;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use chrono::{DateTime, Utc};
use records::{content, fail, partition_of, Check, Content, Ending, Outcome, PARTITIONS, TIME_ZERO_MS};
use rskafka::client::partition::{Compression, OffsetAt, PartitionClient, UnknownTopicHandling};
use rskafka::client::{Client, ClientBuilder, Credentials, OauthBearerCredentials, SaslConfig};
use rskafka::record::Record;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

const NAMES: [&str; 18] = [
    "create-topic", "produce-none", "produce-gzip", "produce-snappy", "produce-lz4", "produce-zstd", "consume-group",
    "consume-group-848", "commit-resume", "broker-restart", "broker-kill", "read-by-timestamp", "acks",
    "idempotent-produce", "transactions", "admin", "interop", "delete-topic",
];
const FETCH_BYTES: i32 = 10 << 20;
const NO_GROUPS: &str = "rskafka knows no groups";

struct Cases {
    client: Client,
    prefix: String,
    suffix: String,
    count: i64,
}

impl Cases {
    fn topic(&self, name: &str) -> String {
        format!("compat-{}-{name}-{}", self.prefix, self.suffix)
    }

    async fn create(&self, name: &str) -> Outcome<String> {
        let topic = self.topic(name);
        self.client.controller_client()?.create_topic(&topic, PARTITIONS, 1, 10_000).await?;
        Ok(topic)
    }

    async fn partition(&self, topic: &str, partition: i32) -> Outcome<Arc<PartitionClient>> {
        Ok(Arc::new(self.client.partition_client(topic, partition, UnknownTopicHandling::Retry).await?))
    }

    async fn produce(
        &self,
        topic: &str,
        numbers: std::ops::Range<i64>,
        compression: Compression,
        time: impl Fn(i64) -> DateTime<Utc>,
    ) -> Outcome<()> {
        for partition in 0..PARTITIONS {
            let client = self.partition(topic, partition).await?;
            let mine: Vec<i64> = numbers.clone().filter(|number| partition_of(*number) == partition).collect();
            for part in mine.chunks(1000) {
                let batch = part.iter().map(|number| record(*number, time(*number))).collect();
                client.produce(batch, compression).await?;
            }
        }
        Ok(())
    }

    /// Read partition after partition, from the offsets that `start` gives to their ends.
    async fn read(&self, topic: &str, with_headers: bool, starts: &BTreeMap<i32, i64>) -> Outcome<Check> {
        let mut check = Check::default();
        for partition in 0..PARTITIONS {
            let client = self.partition(topic, partition).await?;
            let mut offset = starts.get(&partition).copied().unwrap_or(0);
            let end = client.get_offset(OffsetAt::Latest).await?;
            while offset < end {
                let (records, _) = client.fetch_records(offset, 1..FETCH_BYTES, 500).await?;
                for read in records {
                    let time_ms = read.record.timestamp.timestamp_millis();
                    let number = check.add(partition, read.offset, &unpacked(read.record), with_headers)?;
                    if !starts.is_empty() && time_ms != TIME_ZERO_MS + number * 1000 {
                        return fail(format!("record {number} has the timestamp {time_ms}"));
                    }
                    offset = read.offset + 1;
                }
            }
        }
        Ok(check)
    }

    async fn produce_case(&self, name: &str, compression: Compression) -> Outcome<String> {
        let topic = self.create(name).await?;
        self.produce(&topic, 0..self.count, compression, |_| Utc::now()).await?;
        self.read(&topic, true, &BTreeMap::new()).await?.finish(0..self.count)?;
        Ok(format!("{} records", self.count))
    }

    async fn create_topic(&self) -> Outcome<String> {
        let topic = self.create("create-topic").await?;
        let listed = self.client.list_topics().await?;
        let found = listed.iter().find(|found| found.name == topic).map(|found| found.partitions.len());
        if found != Some(PARTITIONS as usize) {
            return fail(format!("the topic has partitions {found:?}"));
        }
        match self.client.controller_client()?.create_topic(&topic, PARTITIONS, 1, 10_000).await {
            Err(error) if error.to_string().contains("TopicAlreadyExists") => Ok(format!("{PARTITIONS} partitions")),
            other => fail(format!("created twice: {other:?}")),
        }
    }

    async fn read_by_timestamp(&self) -> Outcome<String> {
        let topic = self.create("read-by-timestamp").await?;
        let time = |number: i64| DateTime::from_timestamp_millis(TIME_ZERO_MS + number * 1000).unwrap_or_default();
        self.produce(&topic, 0..1000, Compression::NoCompression, time).await?;
        let mut starts = BTreeMap::new();
        for partition in 0..PARTITIONS {
            let client = self.partition(&topic, partition).await?;
            starts.insert(partition, client.get_offset(OffsetAt::Timestamp(time(500))).await?);
            if let Ok(late) = client.get_offset(OffsetAt::Timestamp(time(1000))).await {
                if late != -1 {
                    return fail(format!("offset {late} for a time after the last record"));
                }
            }
        }
        self.read(&topic, true, &starts).await?.finish(500..1000)?;
        Ok("offsets of the 501st record on, read from there".to_owned())
    }

    async fn administer(&self) -> Outcome<String> {
        let topic = self.create("admin").await?;
        self.produce(&topic, 0..300, Compression::NoCompression, |_| Utc::now()).await?;
        let client = self.partition(&topic, 1).await?;
        let end = client.get_offset(OffsetAt::Latest).await?;
        client.delete_records(end - 2, 10_000).await?;
        let start = client.get_offset(OffsetAt::Earliest).await?;
        if start != end - 2 {
            return fail(format!("records from {start} on are left, not from {}", end - 2));
        }
        Ok("records".to_owned())
    }

    async fn interop(&self) -> Outcome<String> {
        let Ok(text) = std::env::var("COMPAT_TOPICS") else {
            return Err(Ending::Skip("no topics of other clients were named in COMPAT_TOPICS".to_owned()));
        };
        let mut topics = 0;
        for item in text.split(',') {
            let parts: Vec<&str> = item.split(':').collect();
            let check = self.read(parts[0], parts[2] == "headers", &BTreeMap::new()).await?;
            check.finish(0..parts[1].parse()?).map_err(|ending| match ending {
                Ending::Fail(text) => Ending::Fail(format!("{}: {text}", parts[0])),
                skip => skip,
            })?;
            topics += 1;
        }
        Ok(format!("{topics} topics of other clients"))
    }

    async fn delete_topic(&self) -> Outcome<String> {
        let topic = self.create("delete-topic").await?;
        self.produce(&topic, 0..100, Compression::NoCompression, |_| Utc::now()).await?;
        self.client.controller_client()?.delete_topic(&topic, 10_000).await?;
        let deadline = Instant::now() + Duration::from_secs(20);
        while self.client.list_topics().await?.iter().any(|found| found.name == topic) {
            if Instant::now() > deadline {
                return fail("the topic is still there");
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok("gone".to_owned())
    }

    async fn run(&self, name: &str) -> Outcome<String> {
        match name {
            "create-topic" => self.create_topic().await,
            "produce-none" => self.produce_case(name, Compression::NoCompression).await,
            "produce-gzip" => self.produce_case(name, Compression::Gzip).await,
            "produce-snappy" => self.produce_case(name, Compression::Snappy).await,
            "produce-lz4" => self.produce_case(name, Compression::Lz4).await,
            "produce-zstd" => self.produce_case(name, Compression::Zstd).await,
            "read-by-timestamp" => self.read_by_timestamp().await,
            "admin" => self.administer().await,
            "interop" => self.interop().await,
            "delete-topic" => self.delete_topic().await,
            "acks" => Err(Ending::Skip("rskafka always asks for acks=all".to_owned())),
            "idempotent-produce" => Err(Ending::Skip("rskafka's producer is not idempotent".to_owned())),
            "transactions" => Err(Ending::Skip("rskafka knows no transactions".to_owned())),
            _ => Err(Ending::Skip(NO_GROUPS.to_owned())),
        }
    }
}

fn record(number: i64, timestamp: DateTime<Utc>) -> Record {
    let Content { key, value, headers } = content(number);
    Record { key: Some(key), value: Some(value), headers, timestamp }
}

fn unpacked(record: Record) -> Content {
    Content {
        key: record.key.unwrap_or_default(),
        value: record.value.unwrap_or_default(),
        headers: record.headers,
    }
}

fn environment(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

fn text(name: &str) -> String {
    std::env::var(name).unwrap_or_default()
}

/// Whom to trust and what to show by TLS, if the environment asks for it.
fn tls() -> Option<Arc<ClientConfig>> {
    if !text("COMPAT_SECURITY_PROTOCOL").ends_with("SSL") {
        return None;
    }
    let certificates = |name: &str| -> Vec<CertificateDer<'static>> {
        let file = CertificateDer::pem_file_iter(text(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
        file.map(|one| one.expect("a certificate")).collect()
    };
    let mut roots = RootCertStore::empty();
    for authority in certificates("COMPAT_SSL_CA") {
        roots.add(authority).expect("an authority");
    }
    let config = ClientConfig::builder().with_root_certificates(roots);
    let key = text("COMPAT_SSL_KEY");
    let config = if key.is_empty() {
        config.with_no_client_auth()
    } else {
        let key = PrivateKeyDer::from_pem_file(key).expect("a key");
        config.with_client_auth_cert(certificates("COMPAT_SSL_CERTIFICATE"), key).expect("a key of the certificate")
    };
    Some(Arc::new(config))
}

/// The login that the environment names, if it names one.
fn login() -> Option<SaslConfig> {
    if !text("COMPAT_SECURITY_PROTOCOL").starts_with("SASL_") {
        return None;
    }
    let credentials = Credentials::new(text("COMPAT_SASL_USER"), text("COMPAT_SASL_PASSWORD"));
    match text("COMPAT_SASL_MECHANISM").as_str() {
        "PLAIN" => Some(SaslConfig::Plain(credentials)),
        "SCRAM-SHA-256" => Some(SaslConfig::ScramSha256(credentials)),
        "OAUTHBEARER" => Some(SaslConfig::Oauthbearer(OauthBearerCredentials {
            callback: Arc::new(|| Box::pin(async { Ok(std::env::var("COMPAT_SASL_TOKEN").unwrap_or_default()) })),
            authz_id: None,
            bearer_kvs: Vec::new(),
        })),
        _ => Some(SaslConfig::ScramSha512(credentials)),
    }
}

#[tokio::main]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some((bootstrap, wanted)) = arguments.split_first() else {
        eprintln!("usage: cases HOST:PORT [CASE...]");
        std::process::exit(1);
    };
    if let Some(unknown) = wanted.iter().find(|name| !NAMES.contains(&name.as_str())) {
        eprintln!("no such case: {unknown}; there are {}", NAMES.join(", "));
        std::process::exit(1);
    }
    let mut builder = ClientBuilder::new(vec![bootstrap.clone()]);
    if let Some(login) = login() {
        builder = builder.sasl_config(login);
    }
    if let Some(tls) = tls() {
        builder = builder.tls_config(tls);
    }
    let client = builder.build().await.unwrap_or_else(|error| {
        eprintln!("{bootstrap}: {error}");
        std::process::exit(1);
    });
    let micros = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros());
    let cases = Cases {
        client,
        prefix: std::env::var("COMPAT_CLIENT").unwrap_or_else(|_| "client".to_owned()),
        suffix: format!("{:09}", (micros + 1_000_003 * u128::from(std::process::id())) % 1_000_000_000),
        count: environment("COMPAT_RECORDS", 10_000) as i64,
    };
    let limit = Duration::from_secs(environment("COMPAT_CASE_TIMEOUT_S", 90));
    let mut failed = false;
    for name in NAMES.iter().filter(|name| wanted.is_empty() || wanted.iter().any(|one| one == *name)) {
        let begun = Instant::now();
        let ended = tokio::time::timeout(limit, cases.run(name)).await;
        let took = format!("({:.1} s)", begun.elapsed().as_secs_f64());
        match ended.unwrap_or_else(|_| fail(format!("no end in {limit:?}"))) {
            Ok(detail) => println!("PASS {name} {detail} {took}"),
            Err(Ending::Skip(reason)) => println!("SKIP {name} {reason}"),
            Err(Ending::Fail(reason)) => {
                failed = true;
                println!("FAIL {name} {} {took}", reason.split_whitespace().collect::<Vec<_>>().join(" "));
            }
        }
    }
    std::process::exit(i32::from(failed));
}
