// A franz-go producer that sends 0, 1, 2, ... until its standard input ends, and prints each acknowledgement:
// "<number> <partition> <offset>", or "error <number> <text>".
package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const outstandingMax = 500

func main() {
	bootstrap, topic := os.Args[1], os.Args[2]
	partitions, _ := strconv.Atoi(os.Args[3])
	rate, _ := strconv.Atoi(os.Args[4])
	client, err := kgo.NewClient(
		kgo.SeedBrokers(strings.Split(bootstrap, ",")...),
		kgo.WithLogger(kgo.BasicLogger(os.Stderr, kgo.LogLevelInfo, func() string {
			return time.Now().Format("15:04:05.000 ")
		})),
		// Without these it goes on with a broker that hangs for 10 s, and hears of another leader after 5 minutes.
		kgo.DialTimeout(500*time.Millisecond),
		kgo.MetadataMaxAge(time.Second),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.RetryBackoffFn(func(int) time.Duration { return 50 * time.Millisecond }),
		kgo.MetadataMinAge(100*time.Millisecond),
		kgo.ProduceRequestTimeout(500*time.Millisecond),
		kgo.RequestTimeoutOverhead(500*time.Millisecond),
		kgo.RecordDeliveryTimeout(120*time.Second),
	)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	var isOver atomic.Bool
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		isOver.Store(true)
	}()
	var lock sync.Mutex
	out := bufio.NewWriter(os.Stdout)
	var outstanding atomic.Int64
	begun := time.Now()
	for number := 0; !isOver.Load(); {
		due := int(time.Since(begun).Seconds() * float64(rate))
		if number >= due || outstanding.Load() >= outstandingMax {
			time.Sleep(2 * time.Millisecond)
			continue
		}
		outstanding.Add(1)
		record := &kgo.Record{
			Topic: topic, Partition: int32(number % partitions), Value: []byte(strconv.Itoa(number)),
		}
		sent := number
		client.Produce(context.Background(), record, func(record *kgo.Record, err error) {
			outstanding.Add(-1)
			lock.Lock()
			defer lock.Unlock()
			if err != nil {
				fmt.Fprintf(out, "error %d %v\n", sent, err)
			} else {
				fmt.Fprintf(out, "%d %d %d\n", sent, record.Partition, record.Offset)
			}
			out.Flush()
		})
		number++
	}
	_ = client.Flush(context.Background())
	client.Close()
}
