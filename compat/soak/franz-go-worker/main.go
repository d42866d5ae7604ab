// The worker of worker.py with franz-go: any error ends the process.
package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// Arguments: HOST:PORT, name, file for the numbers of the orders that are done.
func main() {
	bootstrap, name := os.Args[1], os.Args[2]
	told, err := os.OpenFile(os.Args[3], os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	must(err)
	session, err := kgo.NewGroupTransactSession(
		kgo.SeedBrokers(strings.Split(bootstrap, ",")...), kgo.TransactionalID(name), kgo.TransactionTimeout(20*time.Second),
		kgo.ConsumerGroup("clerks"), kgo.InstanceID(name), kgo.Balancers(kgo.RangeBalancer()),
		kgo.SessionTimeout(6*time.Second), kgo.HeartbeatInterval(500*time.Millisecond), kgo.ConsumeTopics("orders"),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.RequireStableFetchOffsets())
	must(err)
	for {
		ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
		records := session.PollRecords(ctx, 20).Records()
		cancel()
		if len(records) > 0 {
			transfer(session, records, told)
		}
	}
}

func transfer(session *kgo.GroupTransactSession, records []*kgo.Record, told *os.File) {
	must(session.Begin())
	first := kgo.AbortingFirstErrPromise(session.Client())
	numbers := make([]string, 0, len(records))
	for _, record := range records {
		order := strings.Split(string(record.Value), " ")
		for account, amount := range map[string]string{order[1]: "-" + order[3], order[2]: order[3]} {
			session.Produce(context.Background(), &kgo.Record{
				Topic: "ledger", Key: []byte(account), Value: []byte(order[0] + " " + amount),
			}, first.Promise())
		}
		numbers = append(numbers, order[0])
	}
	must(first.Err())
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	committed, err := session.End(ctx, kgo.TryCommit)
	must(err)
	if committed { // else the group has rebalanced, and the orders are polled again by whoever has them now
		_, err = fmt.Fprintln(told, strings.Join(numbers, " "))
		must(err)
	}
}
