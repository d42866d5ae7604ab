// A producer that begins while no partition has a leader.
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
	maker, err := kgo.NewClient(seeds, kgo.ClientID("maker"), kgo.AllowAutoTopicCreation())
	if err == nil { // the topic is there
		err = maker.ProduceSync(ctx, &kgo.Record{Topic: "orders", Value: []byte("first")}).FirstErr()
	}
	if err != nil {
		fmt.Println("it failed before it came to the point:", err)
		os.Exit(3)
	}
	producer, err := kgo.NewClient(seeds, kgo.ClientID("producer"), kgo.MetadataMinAge(100*time.Millisecond))
	if err != nil {
		panic(err)
	}
	begin := time.Now()
	err = producer.ProduceSync(ctx, &kgo.Record{Topic: "orders", Value: []byte("second")}).FirstErr()
	took := time.Since(begin).Round(10 * time.Millisecond)
	if err != nil {
		fmt.Printf("SHOWN the record failed after %v: %v\n", took, err)
		return
	}
	fmt.Printf("NOT SHOWN the record was delivered after %v\n", took)
}
