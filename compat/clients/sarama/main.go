// The cases with sarama.
package main

import (
	"compat/harness"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/IBM/sarama"
	"github.com/xdg-go/scram"
)

var (
	cases = harness.NewCases()
	must  = harness.Must
	until = harness.Until
)

func config(change ...func(*sarama.Config)) *sarama.Config {
	made := sarama.NewConfig()
	made.Version = version()
	made.Producer.Return.Successes = true
	made.Producer.RequiredAcks = sarama.WaitForAll
	made.Consumer.Offsets.Initial = sarama.OffsetOldest
	made.Consumer.Group.Heartbeat.Interval = 300 * time.Millisecond
	secure(made)
	for _, apply := range change {
		apply(made)
	}
	return made
}

// version is what a user tells sarama of the broker: its release, where that is known.
func version() sarama.KafkaVersion {
	release := os.Getenv("COMPAT_RELEASE")
	if release == "" {
		return sarama.MaxVersion
	}
	for len(strings.Split(release, ".")) < 3 || strings.HasPrefix(release, "0.") && len(strings.Split(release, ".")) < 4 {
		release += ".0"
	}
	known, err := sarama.ParseKafkaVersion(release)
	must(err)
	if known.IsAtLeast(sarama.MaxVersion) {
		return sarama.MaxVersion
	}
	return known
}

// secure sets TLS and the login that the environment names.
func secure(made *sarama.Config) {
	security := harness.SecurityOfEnvironment()
	made.Net.TLS.Enable, made.Net.TLS.Config = security.TLS != nil, security.TLS
	if security.Mechanism == "" {
		return
	}
	made.Net.SASL.Enable = true
	made.Net.SASL.Mechanism = sarama.SASLMechanism(security.Mechanism)
	made.Net.SASL.User, made.Net.SASL.Password = security.User, security.Password
	made.Net.SASL.TokenProvider = token(security.Token)
	if security.Keytab != "" {
		made.Net.SASL.GSSAPI = sarama.GSSAPIConfig{
			AuthType: sarama.KRB5_KEYTAB_AUTH, ServiceName: "kafka", KeyTabPath: security.Keytab,
			KerberosConfigPath: security.KerberosConfig, Username: security.User, Realm: security.Realm,
		}
	}
	made.Net.SASL.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient {
		if security.Mechanism == "SCRAM-SHA-256" {
			return &scramClient{hash: scram.SHA256}
		}
		return &scramClient{hash: scram.SHA512}
	}
}

type token string

// Token gives sarama the token of OAUTHBEARER.
func (t token) Token() (*sarama.AccessToken, error) {
	return &sarama.AccessToken{Token: string(t)}, nil
}

// scramClient is what sarama's documentation has programs write for SCRAM.
type scramClient struct {
	hash         scram.HashGeneratorFcn
	conversation *scram.ClientConversation
}

func (c *scramClient) Begin(user, password, authorizationID string) error {
	client, err := c.hash.NewClient(user, password, authorizationID)
	if err == nil {
		c.conversation = client.NewConversation()
	}
	return err
}

func (c *scramClient) Step(challenge string) (string, error) { return c.conversation.Step(challenge) }

func (c *scramClient) Done() bool { return c.conversation.Done() }

func seeds() []string { return []string{cases.Bootstrap} }

func admin(do func(sarama.ClusterAdmin)) {
	made := harness.Got(sarama.NewClusterAdmin(seeds(), config()))
	defer made.Close()
	do(made)
}

func create(name string) string {
	topic := cases.Topic(name)
	admin(func(a sarama.ClusterAdmin) {
		must(a.CreateTopic(topic, &sarama.TopicDetail{NumPartitions: harness.Partitions, ReplicationFactor: 1}, false))
	})
	return topic
}

func messageOf(topic string, number int) *sarama.ProducerMessage {
	record := harness.RecordOf(number)
	message := &sarama.ProducerMessage{
		Topic: topic, Key: sarama.ByteEncoder(record.Key), Value: sarama.ByteEncoder(record.Value),
	}
	for _, header := range record.Headers {
		message.Headers = append(message.Headers, sarama.RecordHeader{Key: []byte(header.Name), Value: header.Value})
	}
	return message
}

func send(producer sarama.AsyncProducer, messages []*sarama.ProducerMessage) {
	var group sync.WaitGroup
	group.Add(1)
	go func() {
		defer group.Done()
		for _, message := range messages {
			producer.Input() <- message
		}
	}()
	for range messages {
		select {
		case <-producer.Successes():
		case problem := <-producer.Errors():
			must(problem)
		}
	}
	group.Wait()
}

func messages(topic string, first, last int) []*sarama.ProducerMessage {
	var made []*sarama.ProducerMessage
	for number := first; number < last; number++ {
		made = append(made, messageOf(topic, number))
	}
	return made
}

// idempotentOnce is for cases about reading: see FINDINGS.md, without it a batch may come twice.
func idempotentOnce(c *sarama.Config) {
	c.Net.MaxOpenRequests = 1
	c.Producer.Idempotent = true
}

func produce(topic string, first, last int, change ...func(*sarama.Config)) {
	producer := harness.Got(sarama.NewAsyncProducer(seeds(), config(change...)))
	defer producer.Close()
	send(producer, messages(topic, first, last))
}

func item(message *sarama.ConsumerMessage) harness.Item {
	made := harness.Item{Partition: int(message.Partition), Offset: message.Offset, Key: message.Key, Value: message.Value}
	for _, header := range message.Headers {
		made.Headers = append(made.Headers, harness.Header{Name: string(header.Key), Value: header.Value})
	}
	return made
}

// readFrom reads `count` records, from the offsets that `start` gives for each partition.
func readFrom(topic string, count int, start func(int32) int64, take func(*sarama.ConsumerMessage), change ...func(*sarama.Config)) {
	consumer := harness.Got(sarama.NewConsumer(seeds(), config(change...)))
	defer consumer.Close()
	merged := make(chan *sarama.ConsumerMessage, 1000)
	for _, partition := range harness.Got(consumer.Partitions(topic)) {
		one := harness.Got(consumer.ConsumePartition(topic, partition, start(partition)))
		go func() {
			for message := range one.Messages() {
				merged <- message
			}
		}()
		defer one.AsyncClose()
	}
	seen := 0
	until(func() bool { return seen >= count }, func() {
		select {
		case message := <-merged:
			take(message)
			seen++
		case <-time.After(200 * time.Millisecond):
		}
	}, fmt.Sprintf("%d records of %s", count, topic), 40)
}

func oldest(int32) int64 { return sarama.OffsetOldest }

func read(topic string, count int, headers bool, change ...func(*sarama.Config)) *harness.Check {
	check := harness.NewCheck(headers)
	readFrom(topic, count, oldest, func(message *sarama.ConsumerMessage) { check.Add(item(message)) }, change...)
	return check
}

// member is a consumer group with its handler; what the claims deliver comes out of one channel.
type member struct {
	group    sarama.ConsumerGroup
	arrived  chan *sarama.ConsumerMessage
	cancel   context.CancelFunc
	ended    chan struct{}
	lock     sync.Mutex
	assigned map[int]bool
	session  sarama.ConsumerGroupSession
}

func open(topic, group string, change ...func(*sarama.Config)) *member {
	ctx, cancel := context.WithCancel(context.Background())
	m := &member{
		group: harness.Got(sarama.NewConsumerGroup(seeds(), group, config(change...))), arrived: make(chan *sarama.ConsumerMessage),
		cancel: cancel, ended: make(chan struct{}), assigned: map[int]bool{},
	}
	go func() {
		defer close(m.ended)
		for ctx.Err() == nil {
			if err := m.group.Consume(ctx, []string{topic}, m); err != nil {
				time.Sleep(100 * time.Millisecond)
			}
		}
	}()
	return m
}

func (m *member) Setup(session sarama.ConsumerGroupSession) error {
	m.lock.Lock()
	defer m.lock.Unlock()
	m.session = session
	m.assigned = map[int]bool{}
	for _, partitions := range session.Claims() {
		for _, partition := range partitions {
			m.assigned[int(partition)] = true
		}
	}
	return nil
}

func (m *member) Cleanup(session sarama.ConsumerGroupSession) error {
	session.Commit()
	m.lock.Lock()
	defer m.lock.Unlock()
	m.assigned = map[int]bool{}
	return nil
}

func (m *member) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case message, more := <-claim.Messages():
			if !more {
				return nil
			}
			select {
			case m.arrived <- message:
				session.MarkMessage(message, "")
			case <-session.Context().Done():
				return nil
			}
		case <-session.Context().Done():
			return nil
		}
	}
}

func (m *member) take() []*sarama.ConsumerMessage {
	var taken []*sarama.ConsumerMessage
	enough := time.After(100 * time.Millisecond)
	for len(taken) < 500 {
		select {
		case message := <-m.arrived:
			taken = append(taken, message)
		case <-enough:
			return taken
		}
	}
	return taken
}

func (m *member) Poll() []harness.Item {
	var items []harness.Item
	for _, message := range m.take() {
		items = append(items, item(message))
	}
	return items
}

func (m *member) Assigned() map[int]bool {
	m.lock.Lock()
	defer m.lock.Unlock()
	return m.assigned
}

func (m *member) Close() {
	m.cancel()
	<-m.ended
	must(m.group.Close())
}

func consumeGroup() string {
	topic, group := create("consume-group"), cases.Topic("consume-group-group")
	return harness.ShareTopicInGroup(func() harness.Member { return open(topic, group) },
		func(first, last int) { produce(topic, first, last) }, true)
}

func readAndCommit(topic, group string) func(*harness.Check, int) {
	return func(check *harness.Check, goal int) {
		m := open(topic, group, func(c *sarama.Config) { c.Consumer.Offsets.AutoCommit.Enable = false })
		defer m.Close() // its Cleanup commits
		until(func() bool { return check.Placed() >= goal }, func() {
			for _, one := range m.Poll() {
				check.Add(one)
			}
		}, fmt.Sprintf("%d records", goal), 40)
	}
}

func brokerCase(name, how string) func() string {
	return func() string {
		topic, group := create(name), cases.Topic(name+"-group")
		producer := harness.Got(sarama.NewAsyncProducer(seeds(), config(idempotentOnce, func(c *sarama.Config) {
			c.Producer.Retry.Max = 100
		})))
		defer producer.Close()
		return harness.OutliveBroker(how,
			func(first, last int) { send(producer, messages(topic, first, last)) },
			func() harness.Member { return open(topic, group+"-stays") },
			readAndCommit(topic, group), true)
	}
}

func createTopic() string {
	topic := create("create-topic")
	admin(func(a sarama.ClusterAdmin) {
		found := harness.Got(a.DescribeTopics([]string{topic}))
		harness.Assert(len(found[0].Partitions) == harness.Partitions, "%v", found)
		err := a.CreateTopic(topic, &sarama.TopicDetail{NumPartitions: harness.Partitions, ReplicationFactor: 1}, false)
		harness.Assert(errors.Is(err, sarama.ErrTopicAlreadyExists), "created twice: %v", err)
	})
	return fmt.Sprintf("%d partitions", harness.Partitions)
}

func produceCase(name string, codec sarama.CompressionCodec) func() string {
	return func() string {
		topic := create("produce-" + name)
		produce(topic, 0, harness.Count, func(c *sarama.Config) { c.Producer.Compression = codec })
		read(topic, harness.Count, true).Finish(harness.Numbers(0, harness.Count), false)
		return fmt.Sprintf("%d records", harness.Count)
	}
}

func commitResume() string {
	topic, group := create("commit-resume"), cases.Topic("resume")
	produce(topic, 0, harness.Count, idempotentOnce)
	check := harness.NewCheck(true)
	again := readAndCommit(topic, group)
	again(check, harness.Count/3)
	before := check.Placed()
	again(check, harness.Count)
	check.Finish(harness.Numbers(0, harness.Count), true)
	return fmt.Sprintf("%d records, commit, restart, %d more", before, harness.Count-before)
}

func readByTimestamp() string {
	topic := create("read-by-timestamp")
	stamped := messages(topic, 0, 1000)
	for number, message := range stamped {
		message.Timestamp = time.UnixMilli(harness.TimeZeroMS + int64(number)*1000)
	}
	producer := harness.Got(sarama.NewAsyncProducer(seeds(), config()))
	send(producer, stamped)
	must(producer.Close())
	client := harness.Got(sarama.NewClient(seeds(), config()))
	defer client.Close()
	starts := map[int32]int64{}
	for partition := range int32(harness.Partitions) {
		late := harness.Got(client.GetOffset(topic, partition, harness.TimeZeroMS+1000*1000))
		harness.Assert(late == -1, "offset %d for a time after the last record", late)
		starts[partition] = harness.Got(client.GetOffset(topic, partition, harness.TimeZeroMS+500*1000-1))
	}
	check := harness.NewCheck(true)
	readFrom(topic, 500, func(partition int32) int64 { return starts[partition] }, func(message *sarama.ConsumerMessage) {
		number := check.Add(item(message))
		harness.Assert(message.Timestamp.UnixMilli() == harness.TimeZeroMS+int64(number)*1000, "%v", message.Timestamp)
	})
	check.Finish(harness.Numbers(500, 1000), false)
	return "offsets of the 501st record on, read from there"
}

func acks() string {
	for name, level := range map[string]sarama.RequiredAcks{"0": sarama.NoResponse, "1": sarama.WaitForLocal, "all": sarama.WaitForAll} {
		topic := create("acks-" + name)
		produce(topic, 0, 500, func(c *sarama.Config) { c.Producer.RequiredAcks = level })
		read(topic, 500, true).Finish(harness.Numbers(0, 500), false)
	}
	return "500 records with each of 0, 1, all"
}

func idempotence(c *sarama.Config) {
	c.Producer.Idempotent = true
	c.Net.MaxOpenRequests = 1
}

func idempotent() string {
	topic := create("idempotent")
	produce(topic, 0, harness.Count, idempotence)
	read(topic, harness.Count, true).Finish(harness.Numbers(0, harness.Count), false)
	return fmt.Sprintf("%d records", harness.Count)
}

func transactional(name string) func(*sarama.Config) {
	return func(c *sarama.Config) {
		idempotence(c)
		c.Producer.Transaction.ID = cases.Topic(name)
	}
}

func committed(c *sarama.Config) { c.Consumer.IsolationLevel = sarama.ReadCommitted }

func transactions() string {
	topic := create("transactions")
	producer := harness.Got(sarama.NewAsyncProducer(seeds(), config(transactional("txn"))))
	for part, commit := range []bool{true, false, true} {
		must(producer.BeginTxn())
		send(producer, messages(topic, part*500, part*500+500))
		if commit {
			must(producer.CommitTxn())
		} else {
			must(producer.AbortTxn())
		}
	}
	must(producer.Close())
	wanted := append(harness.Numbers(0, 500), harness.Numbers(1000, 1500)...)
	read(topic, 1000, true, committed).Finish(wanted, false)
	read(topic, 1500, true).Finish(harness.Numbers(0, 1500), false)
	return fmt.Sprintf("two committed, one aborted, of 500 records each; 1000 copied exactly once, %d aborts", copyOnce())
}

// copyOnce copies a topic, offsets and records in one transaction, every third one aborted and done again.
func copyOnce() int {
	source, target, group := create("copy-source"), create("copy-target"), cases.Topic("copy-group")
	produce(source, 0, 1000, idempotentOnce)
	producer := harness.Got(sarama.NewAsyncProducer(seeds(), config(transactional("copy"))))
	defer producer.Close()
	m := open(source, group, func(c *sarama.Config) {
		committed(c)
		c.Consumer.Offsets.AutoCommit.Enable = false
	})
	copied, batches, aborts := 0, 0, 0
	until(func() bool { return copied == 1000 }, func() {
		batch := m.take()
		if len(batch) == 0 {
			return
		}
		for {
			must(producer.BeginTxn())
			var copies []*sarama.ProducerMessage
			ends := map[string][]*sarama.PartitionOffsetMetadata{}
			for _, message := range batch {
				one := &sarama.ProducerMessage{
					Topic: target, Key: sarama.ByteEncoder(message.Key), Value: sarama.ByteEncoder(message.Value),
				}
				for _, header := range message.Headers {
					one.Headers = append(one.Headers, *header)
				}
				copies = append(copies, one)
				ends[source] = append(ends[source], &sarama.PartitionOffsetMetadata{
					Partition: message.Partition, Offset: message.Offset + 1, LeaderEpoch: -1,
				})
			}
			send(producer, copies)
			must(producer.AddOffsetsToTxn(ends, group))
			batches++
			if batches%3 == 2 {
				aborts++
				must(producer.AbortTxn())
				continue
			}
			must(producer.CommitTxn())
			copied += len(batch)
			return
		}
	}, "1000 records copied", 40)
	m.Close()
	admin(func(a sarama.ClusterAdmin) {
		offsets := harness.Got(a.ListConsumerGroupOffsets(group, map[string][]int32{source: {0, 1, 2}}))
		sum := int64(0)
		for _, block := range offsets.Blocks[source] {
			sum += max(block.Offset, 0)
		}
		harness.Assert(sum == 1000, "offsets of %d records are committed", sum)
	})
	read(target, 1000, true, committed).Finish(harness.Numbers(0, 1000), false)
	return aborts
}

func administer() string {
	topic, group := create("admin"), cases.Topic("admin-group")
	produce(topic, 0, 300)
	readAndCommit(topic, group)(harness.NewCheck(true), 300)
	client := harness.Got(sarama.NewClient(seeds(), config()))
	defer client.Close()
	admin(func(a sarama.ClusterAdmin) {
		retention := func() string {
			for _, entry := range harness.Got(a.DescribeConfig(sarama.ConfigResource{Type: sarama.TopicResource, Name: topic})) {
				if entry.Name == "retention.ms" {
					return entry.Value
				}
			}
			return ""
		}
		harness.Assert(retention() == "604800000", "retention.ms is %s", retention())
		value := "12345678"
		set := func(operation sarama.IncrementalAlterConfigsOperation, value *string) {
			must(a.IncrementalAlterConfig(sarama.TopicResource, topic,
				map[string]sarama.IncrementalAlterConfigsEntry{"retention.ms": {Operation: operation, Value: value}}, false))
		}
		set(sarama.IncrementalAlterConfigsOperationSet, &value)
		until(func() bool { return retention() == value }, harness.Pause, "a changed topic config", 10)
		set(sarama.IncrementalAlterConfigsOperationDelete, nil)
		until(func() bool { return retention() == "604800000" }, harness.Pause, "the config that was set back", 10)
		must(a.CreatePartitions(topic, 5, nil, false))
		until(func() bool { return len(harness.Got(a.DescribeTopics([]string{topic}))[0].Partitions) == 5 },
			harness.Pause, "five partitions", 10)
		end := harness.Got(client.GetOffset(topic, 1, sarama.OffsetNewest))
		must(a.DeleteRecords(topic, map[int32]int64{1: end - 2}))
		start := harness.Got(client.GetOffset(topic, 1, sarama.OffsetOldest))
		harness.Assert(start == end-2, "records from %d on are left, not from %d", start, end-2)
		_, listed := harness.Got(a.ListConsumerGroups())[group]
		harness.Assert(listed, "%s is not listed", group)
		state := harness.Got(a.DescribeConsumerGroups([]string{group}))[0].State
		harness.Assert(state == "Empty", "the group is %s", state)
		must(a.DeleteConsumerGroup(group))
		_, listed = harness.Got(a.ListConsumerGroups())[group]
		harness.Assert(!listed, "%s is still listed", group)
	})
	return "configs, partitions, records, groups"
}

func interop() string {
	topics := harness.InteropTopics()
	for _, written := range topics {
		read(written.Topic, written.Count, written.Headers).Finish(harness.Numbers(0, written.Count), false)
	}
	return fmt.Sprintf("%d topics of other clients", len(topics))
}

func deleteTopic() string {
	topic := create("delete-topic")
	produce(topic, 0, 100)
	admin(func(a sarama.ClusterAdmin) {
		must(a.DeleteTopic(topic))
		until(func() bool {
			_, there := harness.Got(a.ListTopics())[topic]
			return !there
		}, harness.Pause, "the topic is gone", 20)
	})
	return "gone"
}

func main() {
	for name, codec := range map[string]sarama.CompressionCodec{
		"none": sarama.CompressionNone, "gzip": sarama.CompressionGZIP, "snappy": sarama.CompressionSnappy,
		"lz4": sarama.CompressionLZ4, "zstd": sarama.CompressionZSTD,
	} {
		cases.Add("produce-"+name, produceCase(name, codec))
	}
	cases.Lacks["consume-group-848"] = "sarama knows the classic group protocol only"
	cases.Add("create-topic", createTopic)
	cases.Add("consume-group", consumeGroup)
	cases.Add("commit-resume", commitResume)
	cases.Add("broker-restart", brokerCase("broker-restart", "term"))
	cases.Add("broker-kill", brokerCase("broker-kill", "kill"))
	cases.Add("read-by-timestamp", readByTimestamp)
	cases.Add("acks", acks)
	cases.Add("idempotent-produce", idempotent)
	cases.Add("transactions", transactions)
	cases.Add("admin", administer)
	cases.Add("interop", interop)
	cases.Add("delete-topic", deleteTopic)
	cases.Main()
}
