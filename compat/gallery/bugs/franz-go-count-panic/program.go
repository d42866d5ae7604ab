// A consumer that is sent a batch which says that it has -1 records.
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
	client, err := kgo.NewClient(kgo.SeedBrokers(os.Args[1]), kgo.AllowAutoTopicCreation(), kgo.ConsumeTopics("orders"),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err == nil {
		err = client.ProduceSync(ctx, &kgo.Record{Topic: "orders", Value: []byte("x")}).FirstErr()
	}
	if err != nil {
		fmt.Println("it failed before it came to the point:", err)
		os.Exit(3)
	}
	records, said := 0, "nothing"
	for deadline := time.Now().Add(5 * time.Second); time.Now().Before(deadline); {
		poll, stop := context.WithTimeout(ctx, time.Second)
		fetches := client.PollFetches(poll)
		stop()
		records += fetches.NumRecords()
		fetches.EachError(func(_ string, _ int32, err error) {
			if err != context.DeadlineExceeded {
				said = err.Error()
			}
		})
	}
	fmt.Printf("NOT SHOWN the process lives; %d records were delivered, error: %s\n", records, said)
}
