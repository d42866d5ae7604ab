package tests

import (
	"context"
	"strings"
	"testing"
	"time"

	"barnabas/testserver"
	"github.com/twmb/franz-go/pkg/kgo"
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
