// A reader whose broker damages what it sends.
package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"time"

	"github.com/segmentio/kafka-go"
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 40*time.Second)
	defer cancel()
	sent := bytes.Repeat([]byte("a"), 200)
	writer := &kafka.Writer{Addr: kafka.TCP(os.Args[1]), Topic: "orders", AllowAutoTopicCreation: true, BatchTimeout: time.Millisecond}
	var err error
	for i := 0; i < 50; i++ {
		if err = writer.WriteMessages(ctx, kafka.Message{Value: sent}); err == nil {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	if err != nil {
		fmt.Println("it failed before it came to the point:", err)
		os.Exit(3)
	}
	reader := kafka.NewReader(kafka.ReaderConfig{Brokers: []string{os.Args[1]}, Topic: "orders", MaxAttempts: 3})
	message, err := reader.ReadMessage(ctx)
	if err != nil {
		fmt.Printf("NOT SHOWN nothing is delivered: %v\n", err)
		return
	}
	different := 0
	for i := range sent {
		if i >= len(message.Value) || message.Value[i] != sent[i] {
			different++
		}
	}
	if different > 0 {
		fmt.Printf("SHOWN a record was delivered of which %d byte(s) of %d are not what was sent\n", different, len(sent))
		return
	}
	fmt.Println("NOT SHOWN the record is as it was sent")
}
