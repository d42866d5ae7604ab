// A transaction that reads a record and writes what it makes of it.
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	seeds := kgo.SeedBrokers(os.Args[1])
	producer, err := kgo.NewClient(seeds, kgo.AllowAutoTopicCreation())
	check(err)
	check(producer.ProduceSync(ctx, &kgo.Record{Topic: "orders", Value: []byte("order 1")}).FirstErr())
	check(producer.ProduceSync(ctx, &kgo.Record{Topic: "invoices", Value: []byte("before")}).FirstErr())

	session, err := kgo.NewGroupTransactSession(seeds, kgo.TransactionalID("billing"), kgo.ConsumerGroup("billing"),
		kgo.ConsumeTopics("orders"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.RequireStableFetchOffsets())
	check(err)
	fetches := session.PollFetches(ctx)
	check(fetches.Err())
	check(session.Begin())
	check(session.ProduceSync(ctx, &kgo.Record{Topic: "invoices", Value: []byte("invoice 1")}).FirstErr())
	committed, err := session.End(ctx, kgo.TryCommit)

	reader, rerr := kgo.NewClient(seeds, kgo.ConsumeTopics("invoices"), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	check(rerr)
	seen := 0
	for deadline := time.Now().Add(3 * time.Second); time.Now().Before(deadline); {
		poll, stop := context.WithTimeout(ctx, time.Second)
		reader.PollFetches(poll).EachRecord(func(record *kgo.Record) {
			if string(record.Value) == "invoice 1" {
				seen++
			}
		})
		stop()
	}
	if committed && err == nil && seen == 0 {
		fmt.Println("SHOWN End says that the transaction is committed; no reader of committed records sees what it wrote")
		return
	}
	fmt.Printf("NOT SHOWN End returned committed=%v, error=%v; %d records are visible\n", committed, err, seen)
}

func check(err error) {
	if err != nil {
		fmt.Println("it failed before it came to the point:", err)
		os.Exit(3)
	}
}
