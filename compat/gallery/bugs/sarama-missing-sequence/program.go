// An idempotent producer that goes on while a batch is tried again.
package main

import (
	"fmt"
	"os"
	"time"

	"github.com/IBM/sarama"
)

const count = 20

func main() {
	config := sarama.NewConfig()
	config.Version = sarama.V2_8_0_0
	config.Producer.Idempotent = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Return.Successes = true
	config.Producer.Retry.Backoff = 500 * time.Millisecond
	config.Producer.Retry.Max = 5
	config.Net.MaxOpenRequests = 1
	config.Producer.Flush.MaxMessages = 1
	producer, err := sarama.NewAsyncProducer([]string{os.Args[1]}, config)
	if err != nil {
		fmt.Println("it failed before it came to the point:", err)
		os.Exit(3)
	}
	go func() {
		for i := 0; i < count; i++ {
			producer.Input() <- &sarama.ProducerMessage{Topic: "orders", Value: sarama.StringEncoder(fmt.Sprint(i))}
			time.Sleep(60 * time.Millisecond)
		}
	}()
	offsets, repeated, failed, said := map[int64]bool{}, 0, 0, ""
	timeout := time.After(40 * time.Second)
	for i := 0; i < count; i++ {
		select {
		case message := <-producer.Successes():
			if offsets[message.Offset] {
				repeated++
			}
			offsets[message.Offset] = true
		case err := <-producer.Errors():
			failed++
			said = err.Err.Error()
		case <-timeout:
			fmt.Printf("SHOWN %d of %d records have no outcome after 40 s\n", count-i, count)
			return
		}
	}
	if failed+repeated > 0 {
		fmt.Printf("SHOWN of %d records %d failed, %d were acknowledged with the offset of another one; %s\n", count, failed, repeated, said)
		return
	}
	fmt.Printf("NOT SHOWN all %d records are delivered, each once\n", count)
}
