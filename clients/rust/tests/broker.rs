use barnabas_test_server::Broker;
use kafka::consumer::{Consumer, FetchOffset, GroupOffsetStorage};
use kafka::producer::{Producer, Record, RequiredAcks};
use serde_json::json;

fn values(broker: &Broker) -> Vec<String> {
    let found = broker.control("GET", "/v1/topics/orders/records", None).unwrap();
    let records = found["records"].as_array().unwrap();
    records.iter().map(|one| one["value"].as_str().unwrap().to_string()).collect()
}

fn converts<E: std::error::Error + Send + Sync + 'static>(error: E) -> Box<dyn std::error::Error> {
    error.into() // as `?` does, also that of anyhow
}

#[test]
fn errors_are_those_of_the_usual_signatures() -> Result<(), Box<dyn std::error::Error>> {
    let broker = Broker::start(&["--topic", "orders"])?;
    broker.reset()?;
    let error = broker.restore("none").unwrap_err();
    assert!(format!("{error:?}").contains("there is no snapshot none"));
    assert!(converts(error).to_string().contains("/v1/snapshots/none/restore"));
    Ok(())
}

#[test]
fn missing_command_is_named_with_a_way_out() {
    let error = Broker::start_by("no-such-barnabas", &[]).err().unwrap().to_string();
    assert!(error.contains("no-such-barnabas") && error.contains("pip install barnabas"), "{error}");
}

#[test]
fn secured_broker_says_what_its_clients_need() {
    let broker = Broker::start(&["--security", "SASL_SSL"]).unwrap();
    assert_eq!(broker.security["protocol"], "SASL_SSL");
    assert!(broker.security["passwords"]["alice"].is_string());
    assert!(std::path::Path::new(broker.security["ca"].as_str().unwrap()).exists());
}

#[test]
fn a_producer_and_a_consumer() {
    let broker = Broker::start(&["--topic", "orders:2"]).unwrap();
    let hosts = vec![broker.bootstrap.clone()];
    let mut producer = Producer::from_hosts(hosts.clone()).with_required_acks(RequiredAcks::All).create().unwrap();
    producer.send(&Record::from_value("orders", "first")).unwrap();
    broker.wait_for_records("orders", 1).unwrap();
    let mut consumer = Consumer::from_hosts(hosts)
        .with_topic("orders".into())
        .with_fallback_offset(FetchOffset::Earliest)
        .with_offset_storage(Some(GroupOffsetStorage::Kafka))
        .create()
        .unwrap();
    let mut found = vec![];
    for _ in 0..100 {
        for set in consumer.poll().unwrap().iter() {
            found.extend(set.messages().iter().map(|one| one.value.to_vec()));
        }
        if !found.is_empty() {
            break;
        }
    }
    assert_eq!(found, vec![b"first".to_vec()]);
}

#[test]
fn state_is_reset_and_restored() {
    let broker = Broker::start(&["--topic", "orders"]).unwrap();
    broker.control("POST", "/v1/topics/orders/records", Some(json!({ "records": ["kept"] }))).unwrap();
    broker.snapshot("one").unwrap();
    broker.control("POST", "/v1/topics/orders/records", Some(json!({ "records": ["dropped"] }))).unwrap();
    broker.restore("one").unwrap();
    assert_eq!(values(&broker), ["kept"]);
    broker.reset().unwrap();
    assert!(values(&broker).is_empty());
    let error = broker.restore("none").unwrap_err().to_string();
    assert!(error.contains("there is no snapshot none"), "{error}");
}

#[test]
fn a_cluster_serves_with_a_node_down() {
    let broker = Broker::start(&["--brokers", "3"]).unwrap();
    broker.create_topic("orders", 1).unwrap();
    broker.move_leader("orders", 0, 2).unwrap();
    let produce = |value: &str| {
        let hosts = broker.bootstrap.split(',').map(String::from).collect();
        for _ in 0..100 {
            let producer = Producer::from_hosts(Vec::clone(&hosts)).with_required_acks(RequiredAcks::All).create();
            if producer.and_then(|mut producer| producer.send(&Record::from_value("orders", value))).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(100)); // this client does not try again by itself
        }
        panic!("{value} is not acknowledged");
    };
    produce("before");
    broker.kill_node(2).unwrap();
    produce("without the leader");
    broker.start_node(2).unwrap();
    broker.move_leader("orders", 0, 2).unwrap();
    broker.isolate_node(3, false).unwrap();
    produce("with one cut off");
    broker.rejoin_node(3).unwrap();
    broker.stop_node(1).unwrap();
    assert_eq!(broker.leader("orders", 0).unwrap(), 2);
    let cluster = broker.cluster().unwrap();
    let running: Vec<_> = cluster["nodes"].as_array().unwrap().iter().map(|node| node["running"] == true).collect();
    assert_eq!(running, [false, true, true]);
}
