// How often a plain (not idempotent) producer of a topic that was just created writes a record twice, and what sarama logs then:
//
//	go run ./twice HOST:PORT [PRODUCERS]
//
// Each round creates a topic, produces numbered records, each acknowledged, and reads the partitions. What stands twice is printed
// with its offsets and the lines of sarama's own log of that round.
package main

import (
	"bytes"
	"fmt"
	"log"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/IBM/sarama"
)

const (
	records    = 1000
	partitions = 3
)

func config() *sarama.Config {
	config := sarama.NewConfig()
	config.Version = sarama.MaxVersion
	config.Producer.Return.Successes = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Consumer.Fetch.Default = 10 << 20
	return config
}

// produce sends the records and waits for all acknowledgements, as a program would.
func produce(bootstrap, topic string) error {
	producer, err := sarama.NewAsyncProducer([]string{bootstrap}, config())
	if err != nil {
		return err
	}
	defer producer.Close()
	var group sync.WaitGroup
	group.Add(1)
	go func() {
		defer group.Done()
		for number := 0; number < records; number++ {
			producer.Input() <- &sarama.ProducerMessage{
				Topic: topic, Key: sarama.StringEncoder(fmt.Sprintf("key-%d", number)), Value: sarama.StringEncoder(strconv.Itoa(number)),
			}
		}
	}()
	for number := 0; number < records; number++ {
		select {
		case <-producer.Successes():
		case problem := <-producer.Errors():
			return problem
		}
	}
	group.Wait()
	return nil
}

// places reads the topic: partition and offset of each record.
func places(bootstrap, topic string) (map[string][]string, error) {
	client, err := sarama.NewClient([]string{bootstrap}, config())
	if err != nil {
		return nil, err
	}
	defer client.Close()
	consumer, err := sarama.NewConsumerFromClient(client)
	if err != nil {
		return nil, err
	}
	defer consumer.Close()
	places := map[string][]string{}
	for partition := int32(0); partition < partitions; partition++ {
		end, err := client.GetOffset(topic, partition, sarama.OffsetNewest)
		if err != nil {
			return nil, err
		}
		if end == 0 {
			continue
		}
		reader, err := consumer.ConsumePartition(topic, partition, 0)
		if err != nil {
			return nil, err
		}
		for message := range reader.Messages() {
			value := string(message.Value)
			places[value] = append(places[value], fmt.Sprintf("%d:%d", partition, message.Offset))
			if message.Offset == end-1 {
				break
			}
		}
		reader.Close()
	}
	return places, nil
}

// round returns how many records stand twice in a new topic, and how many are missing.
func round(bootstrap, topic string) (int, int, error) {
	admin, err := sarama.NewClusterAdmin([]string{bootstrap}, config())
	if err != nil {
		return 0, 0, err
	}
	detail := &sarama.TopicDetail{NumPartitions: partitions, ReplicationFactor: 1}
	if err := admin.CreateTopic(topic, detail, false); err != nil {
		return 0, 0, err
	}
	admin.Close()
	var lines bytes.Buffer
	sarama.Logger = log.New(&lines, "", log.Lmicroseconds)
	if err := produce(bootstrap, topic); err != nil {
		return 0, 0, err
	}
	produced := lines.String()
	places, err := places(bootstrap, topic)
	if err != nil {
		return 0, 0, err
	}
	twice := 0
	for value, offsets := range places {
		if len(offsets) > 1 {
			twice++
			fmt.Printf("%s: record %s at %v\n", topic, value, offsets)
		}
	}
	if twice > 0 {
		fmt.Print(produced)
	}
	return twice, records - len(places), nil
}

func main() {
	producers := 200
	if len(os.Args) > 2 {
		producers, _ = strconv.Atoi(os.Args[2])
	}
	if len(os.Args) < 2 || producers < 1 {
		fmt.Fprintln(os.Stderr, "go run ./twice HOST:PORT [PRODUCERS]")
		os.Exit(2)
	}
	affected, twice, missing := 0, 0, 0
	for number := 0; number < producers; number++ {
		doubled, lacking, err := round(os.Args[1], fmt.Sprintf("twice-%d-%d", time.Now().UnixMilli(), number))
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		if doubled > 0 {
			affected++
		}
		twice, missing = twice+doubled, missing+lacking
	}
	fmt.Printf("%d of %d producers wrote %d records twice; %d are missing\n", affected, producers, twice, missing)
}
