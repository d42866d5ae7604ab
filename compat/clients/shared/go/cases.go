package harness

import (
	"fmt"
	"math/rand/v2"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"time"
)

// Names of the cases, in the order in which they run.
var Names = []string{
	"create-topic", "produce-none", "produce-gzip", "produce-snappy", "produce-lz4", "produce-zstd", "consume-group",
	"consume-group-848", "commit-resume", "broker-restart", "broker-kill", "read-by-timestamp", "acks",
	"idempotent-produce", "transactions", "admin", "interop", "delete-topic",
}

// Codecs that records can be compressed with.
var Codecs = []string{"none", "gzip", "snappy", "lz4", "zstd"}

var caseTimeout = time.Duration(environment("COMPAT_CASE_TIMEOUT_S", 90)) * time.Second

type failure string
type skip string

// Assert ends the case when a condition does not hold.
func Assert(holds bool, format string, arguments ...any) {
	if !holds {
		panic(failure(fmt.Sprintf(format, arguments...)))
	}
}

// Must ends the case with an error.
func Must(err error) {
	if err != nil {
		panic(failure(err.Error()))
	}
}

// Got is a value that came without an error.
func Got[T any](value T, err error) T {
	Must(err)
	return value
}

// Skip ends the case as one that cannot be asked of this client.
func Skip(format string, arguments ...any) {
	panic(skip(fmt.Sprintf(format, arguments...)))
}

// Until repeats a step until a condition holds.
func Until(condition func() bool, step func(), what string, seconds int) {
	deadline := time.Now().Add(time.Duration(seconds) * time.Second)
	for !condition() {
		Assert(time.Now().Before(deadline), "not in %d s: %s", seconds, what)
		step()
	}
}

// Pause is a step that only waits.
func Pause() { time.Sleep(20 * time.Millisecond) }

// Cases are the cases of one client: functions by name that return the detail to print, and reasons for those it lacks.
type Cases struct {
	Bootstrap string
	Lacks     map[string]string
	functions map[string]func() string
	suffix    string
}

// NewCases makes an empty set.
func NewCases() *Cases {
	return &Cases{
		Lacks:     map[string]string{},
		functions: map[string]func() string{},
		suffix:    fmt.Sprintf("%09d", rand.IntN(1_000_000_000)),
	}
}

// Topic is a name of a topic or group that no other run uses.
func (c *Cases) Topic(name string) string {
	client := os.Getenv("COMPAT_CLIENT")
	if client == "" {
		client = "client"
	}
	return fmt.Sprintf("compat-%s-%s-%s", client, name, c.suffix)
}

// Add registers a case.
func (c *Cases) Add(name string, function func() string) { c.functions[name] = function }

// Main runs the cases named on the command line, or all; ends the process with 1 when one failed.
func (c *Cases) Main() {
	if len(os.Args) < 2 {
		fmt.Fprintf(os.Stderr, "usage: %s HOST:PORT [CASE...]\n", os.Args[0])
		os.Exit(1)
	}
	c.Bootstrap = os.Args[1]
	wanted := os.Args[2:]
	for _, name := range wanted {
		if !slices.Contains(Names, name) {
			fmt.Fprintf(os.Stderr, "no such case: %s; there are %s\n", name, strings.Join(Names, ", "))
			os.Exit(1)
		}
	}
	code := 0
	for _, name := range Names {
		if len(wanted) == 0 || slices.Contains(wanted, name) {
			if c.run(name) == "FAIL" {
				code = 1
			}
		}
	}
	os.Exit(code)
}

func (c *Cases) run(name string) string {
	type verdict struct{ word, detail string }
	start := time.Now()
	done := make(chan verdict, 1)
	go func() {
		defer func() {
			switch reason := recover().(type) {
			case nil:
			case skip:
				done <- verdict{"SKIP", string(reason)}
			case failure:
				done <- verdict{"FAIL", string(reason)}
			default:
				debug.PrintStack()
				done <- verdict{"FAIL", fmt.Sprint(reason)}
			}
		}()
		if reason, lacks := c.Lacks[name]; lacks {
			Skip("%s", reason)
		}
		function, there := c.functions[name]
		Assert(there, "the case is neither there nor lacking")
		done <- verdict{"PASS", function()}
	}()
	var result verdict
	select {
	case result = <-done:
	case <-time.After(caseTimeout):
		result = verdict{"FAIL", fmt.Sprintf("no end in %v", caseTimeout)}
	}
	took := ""
	if result.word != "SKIP" {
		took = fmt.Sprintf(" (%.1f s)", time.Since(start).Seconds())
	}
	fmt.Println(result.word, name, strings.Join(strings.Fields(result.detail), " ")+took)
	return result.word
}

// Topic that another client wrote.
type Written struct {
	Topic   string
	Count   int
	Headers bool
}

// InteropTopics is what the matrix asks to read.
func InteropTopics() []Written {
	text := os.Getenv("COMPAT_TOPICS")
	if text == "" {
		Skip("no topics of other clients were named in COMPAT_TOPICS")
	}
	var topics []Written
	for _, item := range strings.Split(text, ",") {
		parts := strings.Split(item, ":")
		var count int
		Got(fmt.Sscan(parts[1], &count))
		topics = append(topics, Written{parts[0], count, parts[2] == "headers"})
	}
	return topics
}
