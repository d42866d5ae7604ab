// The cases with franz-go.
package main

import (
	"compat/harness"
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	krb5 "github.com/jcmturner/gokrb5/v8/client"
	"github.com/jcmturner/gokrb5/v8/config"
	"github.com/jcmturner/gokrb5/v8/keytab"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/kerberos"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

var (
	cases = harness.NewCases()
	must  = harness.Must
	until = harness.Until
)

const seconds = 30

func within() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), seconds*time.Second)
	time.AfterFunc(seconds*time.Second, cancel)
	return ctx
}

func client(options ...kgo.Opt) *kgo.Client {
	return harness.Got(kgo.NewClient(append(connection(), options...)...))
}

// connection is how each client connects.
func connection() []kgo.Opt {
	security := harness.SecurityOfEnvironment()
	options := []kgo.Opt{kgo.SeedBrokers(cases.Bootstrap)}
	if security.TLS != nil {
		options = append(options, kgo.DialTLSConfig(security.TLS))
	}
	switch login := (scram.Auth{User: security.User, Pass: security.Password}); security.Mechanism {
	case "PLAIN":
		options = append(options, kgo.SASL(plain.Auth{User: security.User, Pass: security.Password}.AsMechanism()))
	case "SCRAM-SHA-256":
		options = append(options, kgo.SASL(login.AsSha256Mechanism()))
	case "SCRAM-SHA-512":
		options = append(options, kgo.SASL(login.AsSha512Mechanism()))
	case "OAUTHBEARER":
		options = append(options, kgo.SASL(oauth.Auth{Token: security.Token}.AsMechanism()))
	case "GSSAPI":
		options = append(options, kgo.SASL(withKerberos(security).AsMechanismWithClose()))
	}
	return options
}

// withKerberos is a login with the user's keytab.
func withKerberos(security harness.Security) kerberos.Auth {
	keys := harness.Got(keytab.Load(security.Keytab))
	settings := harness.Got(config.Load(security.KerberosConfig))
	return kerberos.Auth{
		Client: krb5.NewWithKeytab(security.User, security.Realm, keys, settings), Service: "kafka",
	}
}

func admin(do func(*kadm.Client)) {
	cl := kadm.NewClient(client())
	defer cl.Close()
	do(cl)
}

func create(name string) string {
	topic := cases.Topic(name)
	admin(func(cl *kadm.Client) { harness.Got(cl.CreateTopic(within(), harness.Partitions, 1, nil, topic)) })
	return topic
}

func recordOf(topic string, number int) *kgo.Record {
	record := harness.RecordOf(number)
	made := &kgo.Record{Topic: topic, Key: record.Key, Value: record.Value}
	for _, header := range record.Headers {
		made.Headers = append(made.Headers, kgo.RecordHeader{Key: header.Name, Value: header.Value})
	}
	return made
}

func send(cl *kgo.Client, topic string, first, last int) {
	var group sync.WaitGroup
	var lock sync.Mutex
	var problem error
	for number := first; number < last; number++ {
		group.Add(1)
		cl.Produce(context.Background(), recordOf(topic, number), func(_ *kgo.Record, err error) {
			defer group.Done()
			if err != nil {
				lock.Lock()
				problem = err
				lock.Unlock()
			}
		})
	}
	group.Wait()
	must(problem)
}

func produce(topic string, first, last int, options ...kgo.Opt) {
	cl := client(options...)
	defer cl.Close()
	send(cl, topic, first, last)
}

func item(record *kgo.Record) harness.Item {
	made := harness.Item{Partition: int(record.Partition), Offset: record.Offset, Key: record.Key, Value: record.Value}
	for _, header := range record.Headers {
		made.Headers = append(made.Headers, harness.Header{Name: header.Key, Value: header.Value})
	}
	return made
}

func poll(cl *kgo.Client, most int) []*kgo.Record {
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	fetches := cl.PollRecords(ctx, most)
	for _, fault := range fetches.Errors() {
		// That the group's session ended is told, and the client joins again by itself.
		var ended *kgo.ErrGroupSession
		if !errors.Is(fault.Err, context.DeadlineExceeded) && !errors.As(fault.Err, &ended) {
			must(fault.Err)
		}
	}
	return fetches.Records()
}

func read(topic string, count int, headers bool, options ...kgo.Opt) *harness.Check {
	check := harness.NewCheck(headers)
	cl := client(append(options, kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))...)
	defer cl.Close()
	until(func() bool { return check.Placed() >= count }, func() {
		for _, record := range poll(cl, 2000) {
			check.Add(item(record))
		}
	}, fmt.Sprintf("%d records of %s", count, topic), 40)
	return check
}

type member struct {
	cl       *kgo.Client
	lock     sync.Mutex
	assigned map[int]bool
}

func open(topic, group string, options ...kgo.Opt) *member {
	m := &member{assigned: map[int]bool{}}
	change := func(has bool) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, cl *kgo.Client, partitions map[string][]int32) {
			if !has {
				must(cl.CommitUncommittedOffsets(within()))
			}
			m.lock.Lock()
			defer m.lock.Unlock()
			for _, partition := range partitions[topic] {
				if has {
					m.assigned[int(partition)] = true
				} else {
					delete(m.assigned, int(partition))
				}
			}
		}
	}
	m.cl = client(append(options, kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.HeartbeatInterval(300*time.Millisecond),
		kgo.OnPartitionsAssigned(change(true)), kgo.OnPartitionsRevoked(change(false)))...)
	return m
}

func (m *member) Poll() []harness.Item {
	var items []harness.Item
	for _, record := range poll(m.cl, 500) {
		items = append(items, item(record))
	}
	return items
}

func (m *member) Assigned() map[int]bool {
	m.lock.Lock()
	defer m.lock.Unlock()
	assigned := map[int]bool{}
	for partition := range m.assigned {
		assigned[partition] = true
	}
	return assigned
}

func (m *member) Close() {
	must(m.cl.CommitUncommittedOffsets(within()))
	m.cl.Close()
}

func groupCase(name string, ctx context.Context) func() string {
	return func() string {
		topic, group := create(name), cases.Topic(name+"-group")
		return harness.ShareTopicInGroup(
			func() harness.Member { return open(topic, group, kgo.WithContext(ctx)) },
			func(first, last int) { produce(topic, first, last) }, true)
	}
}

func readAndCommit(topic, group string) func(*harness.Check, int) {
	return func(check *harness.Check, goal int) {
		cl := client(kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.DisableAutoCommit(),
			kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
		defer cl.Close()
		until(func() bool { return check.Placed() >= goal }, func() {
			for _, record := range poll(cl, 500) {
				check.Add(item(record))
			}
		}, fmt.Sprintf("%d records", goal), 40)
		must(cl.CommitUncommittedOffsets(within()))
	}
}

func brokerCase(name, how string) func() string {
	return func() string {
		topic, group := create(name), cases.Topic(name+"-group")
		producer := client()
		defer producer.Close()
		return harness.OutliveBroker(how,
			func(first, last int) { send(producer, topic, first, last) },
			func() harness.Member { return open(topic, group+"-stays") },
			readAndCommit(topic, group), true)
	}
}

func createTopic() string {
	topic := create("create-topic")
	admin(func(cl *kadm.Client) {
		found := harness.Got(cl.ListTopics(within(), topic))
		harness.Assert(len(found[topic].Partitions) == harness.Partitions, "%v", found)
		_, err := cl.CreateTopic(within(), harness.Partitions, 1, nil, topic)
		harness.Assert(errors.Is(err, kerr.TopicAlreadyExists), "created twice: %v", err)
	})
	return fmt.Sprintf("%d partitions", harness.Partitions)
}

func produceCase(name string, codec kgo.CompressionCodec) func() string {
	return func() string {
		topic := create("produce-" + name)
		produce(topic, 0, harness.Count, kgo.ProducerBatchCompression(codec))
		read(topic, harness.Count, true).Finish(harness.Numbers(0, harness.Count), false)
		return fmt.Sprintf("%d records", harness.Count)
	}
}

func commitResume() string {
	topic, group := create("commit-resume"), cases.Topic("resume")
	produce(topic, 0, harness.Count)
	check := harness.NewCheck(true)
	again := readAndCommit(topic, group)
	again(check, harness.Count/3)
	before := check.Placed()
	again(check, harness.Count)
	check.Finish(harness.Numbers(0, harness.Count), false)
	return fmt.Sprintf("%d records, commit, restart, %d more", before, harness.Count-before)
}

func readByTimestamp() string {
	topic := create("read-by-timestamp")
	cl := client()
	for number := range 1000 {
		record := recordOf(topic, number)
		record.Timestamp = time.UnixMilli(harness.TimeZeroMS + int64(number)*1000)
		must(cl.ProduceSync(within(), record).FirstErr())
	}
	cl.Close()
	var starts kadm.ListedOffsets
	admin(func(cl *kadm.Client) {
		late := harness.Got(cl.ListOffsetsAfterMilli(within(), harness.TimeZeroMS+1000*1000, topic))
		ends := harness.Got(cl.ListEndOffsets(within(), topic))
		late.Each(func(listed kadm.ListedOffset) {
			end, _ := ends.Lookup(topic, listed.Partition)
			harness.Assert(listed.Offset == end.Offset, "%v is not the end %v", listed, end)
		})
		starts = harness.Got(cl.ListOffsetsAfterMilli(within(), harness.TimeZeroMS+500*1000-1, topic))
	})
	cl = client(kgo.ConsumePartitions(starts.KOffsets()))
	defer cl.Close()
	check := harness.NewCheck(true)
	until(func() bool { return check.Placed() >= 500 }, func() {
		for _, record := range poll(cl, 500) {
			number := check.Add(item(record))
			harness.Assert(record.Timestamp.UnixMilli() == harness.TimeZeroMS+int64(number)*1000, "%v", record.Timestamp)
		}
	}, "the younger half", 40)
	check.Finish(harness.Numbers(500, 1000), false)
	return "offsets of the 501st record on, read from there"
}

func acks() string {
	for name, level := range map[string]kgo.Acks{"0": kgo.NoAck(), "1": kgo.LeaderAck(), "all": kgo.AllISRAcks()} {
		topic := create("acks-" + name)
		produce(topic, 0, 500, kgo.RequiredAcks(level), kgo.DisableIdempotentWrite())
		read(topic, 500, true).Finish(harness.Numbers(0, 500), false)
	}
	return "500 records with each of 0, 1, all"
}

func idempotent() string {
	topic := create("idempotent")
	produce(topic, 0, harness.Count, kgo.RequiredAcks(kgo.AllISRAcks()))
	read(topic, harness.Count, true).Finish(harness.Numbers(0, harness.Count), false)
	return fmt.Sprintf("%d records", harness.Count)
}

func transactions() string {
	topic := create("transactions")
	cl := client(kgo.TransactionalID(cases.Topic("txn")))
	for part, how := range []kgo.TransactionEndTry{kgo.TryCommit, kgo.TryAbort, kgo.TryCommit} {
		must(cl.BeginTransaction())
		send(cl, topic, part*500, part*500+500)
		must(cl.EndTransaction(within(), how))
	}
	cl.Close()
	committed := append(harness.Numbers(0, 500), harness.Numbers(1000, 1500)...)
	read(topic, 1000, true, kgo.FetchIsolationLevel(kgo.ReadCommitted())).Finish(committed, false)
	read(topic, 1500, true).Finish(harness.Numbers(0, 1500), false)
	return fmt.Sprintf("two committed, one aborted, of 500 records each; 1000 copied exactly once, %d aborts", copyOnce())
}

// copyOnce copies a topic, offsets and records in one transaction, every third one aborted and done again.
func copyOnce() int {
	source, target := create("copy-source"), create("copy-target")
	produce(source, 0, 1000)
	session := harness.Got(kgo.NewGroupTransactSession(append(connection(),
		kgo.TransactionalID(cases.Topic("copy")), kgo.ConsumerGroup(cases.Topic("copy-group")),
		kgo.ConsumeTopics(source), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.RequireStableFetchOffsets())...))
	defer session.Close()
	copied, batches, aborts := 0, 0, 0
	until(func() bool { return copied == 1000 }, func() {
		ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
		records := session.PollRecords(ctx, 100).Records()
		cancel()
		if len(records) == 0 {
			return
		}
		must(session.Begin())
		for _, record := range records {
			session.Produce(context.Background(),
				&kgo.Record{Topic: target, Key: record.Key, Value: record.Value, Headers: record.Headers}, nil)
		}
		batches++
		how := kgo.TransactionEndTry(batches%3 != 2)
		done := harness.Got(session.End(within(), how))
		if done {
			copied += len(records)
		} else {
			aborts++
		}
	}, "1000 records copied", 40)
	read(target, 1000, true, kgo.FetchIsolationLevel(kgo.ReadCommitted())).Finish(harness.Numbers(0, 1000), false)
	return aborts
}

func administer() string {
	topic, group := create("admin"), cases.Topic("admin-group")
	produce(topic, 0, 300)
	readAndCommit(topic, group)(harness.NewCheck(true), 300)
	admin(func(cl *kadm.Client) {
		retention := func() string {
			described := harness.Got(harness.Got(cl.DescribeTopicConfigs(within(), topic)).On(topic, nil))
			for _, config := range described.Configs {
				if config.Key == "retention.ms" {
					return config.MaybeValue()
				}
			}
			return ""
		}
		harness.Assert(retention() == "604800000", "retention.ms is %s", retention())
		value := strconv.Itoa(12345678)
		alter := func(change kadm.AlterConfig) {
			for _, answer := range harness.Got(cl.AlterTopicConfigs(within(), []kadm.AlterConfig{change}, topic)) {
				must(answer.Err)
			}
		}
		alter(kadm.AlterConfig{Op: kadm.SetConfig, Name: "retention.ms", Value: &value})
		until(func() bool { return retention() == value }, harness.Pause, "a changed topic config", 10)
		alter(kadm.AlterConfig{Op: kadm.DeleteConfig, Name: "retention.ms"})
		until(func() bool { return retention() == "604800000" }, harness.Pause, "the config that was set back", 10)
		must(harness.Got(cl.UpdatePartitions(within(), 5, topic)).Error())
		until(func() bool { return len(harness.Got(cl.ListTopics(within(), topic))[topic].Partitions) == 5 },
			harness.Pause, "five partitions", 10)
		ends := harness.Got(cl.ListEndOffsets(within(), topic))
		end, _ := ends.Lookup(topic, 1)
		before := kadm.Offsets{}
		before.AddOffset(topic, 1, end.Offset-2, -1)
		harness.Got(cl.DeleteRecords(within(), before))
		start, _ := harness.Got(cl.ListStartOffsets(within(), topic)).Lookup(topic, 1)
		harness.Assert(start.Offset == end.Offset-2, "records from %d on are left, not from %d", start.Offset, end.Offset-2)
		_, listed := harness.Got(cl.ListGroups(within()))[group]
		harness.Assert(listed, "%s is not listed", group)
		described := harness.Got(cl.DescribeGroups(within(), group))[group]
		must(described.Err)
		harness.Assert(described.State == "Empty", "the group is %s", described.State)
		must(harness.Got(cl.DeleteGroups(within(), group)).Error())
		_, listed = harness.Got(cl.ListGroups(within()))[group]
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
	admin(func(cl *kadm.Client) {
		must(harness.Got(cl.DeleteTopics(within(), topic)).Error())
		until(func() bool { return !harness.Got(cl.ListTopics(within())).Has(topic) }, harness.Pause, "the topic is gone", 20)
	})
	return "gone"
}

func main() {
	for name, codec := range map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	} {
		cases.Add("produce-"+name, produceCase(name, codec))
	}
	cases.Add("create-topic", createTopic)
	cases.Add("consume-group", groupCase("consume-group", context.Background()))
	// The client keeps KIP-848 behind this key until it counts as stable there.
	cases.Add("consume-group-848", groupCase("consume-group-848",
		context.WithValue(context.Background(), "opt_in_kafka_next_gen_balancer_beta", true))) //nolint
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
