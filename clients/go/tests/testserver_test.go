package tests

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/barnabas-kafka/barnabas/clients/go/testserver"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/plain"
)

type records struct {
	Records []struct {
		Value string `json:"value"`
	} `json:"records"`
}

func values(t *testing.T, broker *testserver.Broker) string {
	t.Helper()
	var found records
	if err := broker.Control("GET", "/v1/topics/orders/records", nil, &found); err != nil {
		t.Fatal(err)
	}
	all := []string{}
	for _, record := range found.Records {
		all = append(all, record.Value)
	}
	return strings.Join(all, ",")
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// failures is a test's end as a text: Fatalf neither ends the process nor the goroutine's caller.
type failures struct {
	testing.TB
	text string
}

func (f *failures) Helper() {}

func (f *failures) Fatalf(format string, words ...any) {
	f.text = fmt.Sprintf(format, words...)
	runtime.Goexit()
}

func TestMissingCommandIsNamedWithAWayOut(t *testing.T) {
	t.Setenv("BARNABAS_COMMAND", "no-such-barnabas")
	recorded := &failures{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		testserver.Start(recorded)
	}()
	<-done
	if !strings.Contains(recorded.text, "no-such-barnabas") || !strings.Contains(recorded.text, "pip install barnabas") {
		t.Fatal(recorded.text)
	}
}

func TestUserLogsInOverTls(t *testing.T) {
	broker := testserver.Start(t, "--security", "SASL_SSL", "--topic", "orders")
	authority, err := os.ReadFile(broker.Security.CA)
	must(t, err)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(authority)
	client, err := kgo.NewClient(kgo.SeedBrokers(broker.Bootstrap), kgo.DialTLSConfig(&tls.Config{RootCAs: pool}),
		kgo.SASL(plain.Auth{User: "alice", Pass: broker.Security.Passwords["alice"]}.AsMechanism()))
	must(t, err)
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	must(t, client.ProduceSync(ctx, &kgo.Record{Topic: "orders", Value: []byte("first")}).FirstErr())
	if all := values(t, broker); all != "first" {
		t.Fatal(all)
	}
}

func TestAProducerAndAConsumer(t *testing.T) {
	broker := testserver.Start(t, "--topic", "orders:2")
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	client, err := kgo.NewClient(kgo.SeedBrokers(broker.Bootstrap), kgo.ConsumerGroup("g"), kgo.ConsumeTopics("orders"),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	must(t, err)
	defer client.Close()
	must(t, client.ProduceSync(ctx, &kgo.Record{Topic: "orders", Value: []byte("first")}).FirstErr())
	must(t, broker.WaitForRecords("orders", 1))
	fetched := client.PollFetches(ctx)
	must(t, fetched.Err())
	if got := string(fetched.Records()[0].Value); got != "first" {
		t.Fatal(got)
	}
	must(t, broker.WaitForGroup("g"))
}

func TestStateIsResetAndRestored(t *testing.T) {
	broker := testserver.Start(t, "--topic", "orders")
	must(t, broker.Control("POST", "/v1/topics/orders/records", map[string]any{"records": []string{"kept"}}, nil))
	must(t, broker.Snapshot("one"))
	must(t, broker.Control("POST", "/v1/topics/orders/records", map[string]any{"records": []string{"dropped"}}, nil))
	must(t, broker.Restore("one"))
	if got := values(t, broker); got != "kept" {
		t.Fatal(got)
	}
	must(t, broker.Reset())
	if got := values(t, broker); got != "" {
		t.Fatal(got)
	}
	if err := broker.Restore("none"); err == nil || !strings.Contains(err.Error(), "there is no snapshot none") {
		t.Fatal(err)
	}
}

func TestAClusterServesWithANodeDown(t *testing.T) {
	broker := testserver.Start(t, "--brokers", "3")
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	must(t, broker.CreateTopic("orders", 1))
	must(t, broker.MoveLeader("orders", 0, 2))
	client, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(broker.Bootstrap, ",")...), kgo.ConsumeTopics("orders"))
	must(t, err)
	defer client.Close()
	produce := func(value string) {
		t.Helper()
		must(t, client.ProduceSync(ctx, &kgo.Record{Topic: "orders", Value: []byte(value)}).FirstErr())
	}
	produce("before")
	must(t, broker.KillNode(2))
	produce("without the leader")
	must(t, broker.StartNode(2))
	must(t, broker.MoveLeader("orders", 0, 2))
	must(t, broker.IsolateNode(3, false))
	produce("with one cut off")
	must(t, broker.RejoinNode(3))
	must(t, broker.StopNode(1))
	leaders, err := broker.Leaders("orders")
	must(t, err)
	cluster, err := broker.Cluster()
	must(t, err)
	if leaders[0] != 2 || len(cluster.Nodes) != 3 || cluster.Nodes[0].Running || cluster.Nodes[2].Isolated {
		t.Fatal(leaders, cluster)
	}
}
