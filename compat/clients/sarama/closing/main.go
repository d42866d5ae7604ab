// How often a producer that is closed right after its first records reports records as undelivered, and why:
//
//	go run ./closing HOST:PORT [PRODUCERS]
//
// This is what sarama's functional tests of static membership do to fill their topic. One line for each error is
// printed, then how many producers had any.
package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"github.com/IBM/sarama"
)

const records = 1000

// produce makes a client and a producer, hands it the records, and closes it: the errors by their text.
func produce(bootstrap, topic string) (map[string]int, error) {
	config := sarama.NewConfig()
	config.Version = sarama.MaxVersion
	client, err := sarama.NewClient([]string{bootstrap}, config)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	producer, err := sarama.NewAsyncProducerFromClient(client)
	if err != nil {
		return nil, err
	}
	for i := 0; i < records; i++ {
		producer.Input() <- &sarama.ProducerMessage{Topic: topic, Value: sarama.ByteEncoder("testdata")}
	}
	found := map[string]int{}
	var failed sarama.ProducerErrors
	if err := producer.Close(); errors.As(err, &failed) {
		for _, one := range failed {
			found[one.Err.Error()]++
		}
	} else if err != nil {
		return nil, err
	}
	return found, nil
}

// end gives how many records the topic's partitions hold.
func end(bootstrap, topic string, partitions int32) (int64, error) {
	client, err := sarama.NewClient([]string{bootstrap}, sarama.NewConfig())
	if err != nil {
		return 0, err
	}
	defer client.Close()
	var sum int64
	for partition := int32(0); partition < partitions; partition++ {
		offset, err := client.GetOffset(topic, partition, sarama.OffsetNewest)
		if err != nil {
			return 0, err
		}
		sum += offset
	}
	return sum, nil
}

func run(bootstrap string, producers int) error {
	config := sarama.NewConfig()
	config.Version = sarama.MaxVersion
	admin, err := sarama.NewClusterAdmin([]string{bootstrap}, config)
	if err != nil {
		return err
	}
	defer admin.Close()
	topic := fmt.Sprintf("closing-%d", os.Getpid())
	if err := admin.CreateTopic(topic, &sarama.TopicDetail{NumPartitions: 4, ReplicationFactor: 1}, false); err != nil {
		return err
	}
	affected, undelivered := 0, 0
	for n := 0; n < producers; n++ {
		found, err := produce(bootstrap, topic)
		if err != nil {
			return err
		}
		for text, count := range found {
			fmt.Printf("producer %d: %d of %d: %s\n", n, count, records, text)
			undelivered += count
		}
		if len(found) > 0 {
			affected++
		}
	}
	kept, err := end(bootstrap, topic, 4)
	if err != nil {
		return err
	}
	fmt.Printf(
		"%d of %d producers reported %d records as undelivered; of %d records %d are in the log\n",
		affected, producers, undelivered, producers*records, kept,
	)
	return nil
}

func main() {
	producers := 150
	if len(os.Args) > 2 {
		producers, _ = strconv.Atoi(os.Args[2])
	}
	if len(os.Args) < 2 || producers < 1 {
		fmt.Fprintln(os.Stderr, "go run ./closing HOST:PORT [PRODUCERS]")
		os.Exit(2)
	}
	if err := run(os.Args[1], producers); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
