// The reader of readers.py with franz-go: it prints "read <records>" for each reading, "error <text>" for what is not as it
// must be. At the end of its standard input it ends the reading under way, and does a last one.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Arguments: addresses, topic, partitions.
func main() {
	topic := os.Args[2]
	partitions, _ := strconv.Atoi(os.Args[3])
	var isOver atomic.Bool
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		isOver.Store(true)
	}()
	for {
		isLast := isOver.Load()
		fmt.Println("read", read(strings.Split(os.Args[1], ","), topic, partitions))
		if isLast {
			return
		}
		time.Sleep(time.Second)
	}
}

// Reads all partitions from offset 0 to the high watermark that each has in its first answer.
func read(addresses []string, topic string, partitions int) int64 {
	offsets := map[int32]kgo.Offset{}
	for partition := range partitions {
		offsets[int32(partition)] = kgo.NewOffset().At(0)
	}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(addresses...),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: offsets}),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()),
		kgo.RetryBackoffFn(func(int) time.Duration { return 50 * time.Millisecond }),
		kgo.MetadataMinAge(100*time.Millisecond),
		kgo.MetadataMaxAge(time.Second),
		kgo.DialTimeout(500*time.Millisecond),
	)
	if err != nil {
		fail("%v", err)
	}
	defer client.Close()
	ends, expected := map[int32]int64{}, map[int32]int64{}
	for remaining := partitions; remaining > 0; {
		ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
		fetches := client.PollFetches(ctx)
		cancel()
		fetches.EachPartition(func(fetched kgo.FetchTopicPartition) {
			if errors.Is(fetched.Err, kerr.OffsetOutOfRange) {
				fail("partition %d from %d on: %v", fetched.Partition, expected[fetched.Partition], fetched.Err)
			}
			if fetched.Topic != topic || fetched.Err != nil {
				return // brokers and the store come and go
			}
			partition := fetched.Partition
			end, hasBegun := ends[partition]
			if !hasBegun && len(fetched.Records) > 0 {
				end = fetched.HighWatermark
				ends[partition] = end
			}
			before := expected[partition]
			for _, record := range fetched.Records {
				check(record, expected[partition])
				expected[partition]++
			}
			if before < end && expected[partition] >= end {
				remaining--
			}
		})
	}
	var records int64
	for _, count := range expected {
		records += count
	}
	return records
}

func check(record *kgo.Record, expected int64) {
	key := fmt.Sprintf("%d-%d", record.Partition, expected)
	value := fmt.Sprintf("%d %s", expected, strings.Repeat("x", int(expected%64)))
	if record.Offset != expected || string(record.Key) != key || string(record.Value) != value {
		fail("offset %d of partition %d has %s: %s, in the place of %s: %s", record.Offset, record.Partition,
			record.Key, record.Value, key, value)
	}
}

func fail(format string, arguments ...any) {
	fmt.Printf("error "+format+"\n", arguments...)
	os.Exit(1)
}
