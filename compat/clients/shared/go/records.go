// Package harness has the records, their checks and the case runner for the Go clients. It needs nothing but the
// standard library.
package harness

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"os"
	"sort"
	"strconv"
	"strings"
	"sync"
)

// What all languages agree on.
const (
	Partitions = 3
	Keys       = 997
	TimeZeroMS = int64(1_700_000_000_000)
)

var text = []byte("žluťoučký kůň")

// Count is how many records a topic gets in the cases that say 10,000.
var Count = environment("COMPAT_RECORDS", 10000)

func environment(name string, otherwise int) int {
	if number, err := strconv.Atoi(os.Getenv(name)); err == nil {
		return number
	}
	return otherwise
}

// hasHeaders: message formats before 0.11 have none.
var hasHeaders = os.Getenv("COMPAT_HEADERS") != "no"

// Header is one header of a record.
type Header struct {
	Name  string
	Value []byte
}

// Record is record number Number of a topic.
type Record struct {
	Number     int
	Key, Value []byte
	Headers    []Header
}

// RecordOf is the record that has this number, in every topic and every language.
func RecordOf(number int) Record {
	key := fmt.Sprintf("key-%d", number%Keys)
	head := fmt.Sprintf("%d:%s", number, key)
	value := fmt.Sprintf("%s:%08x:%s", head, crc32.ChecksumIEEE([]byte(head)), strings.Repeat("x", number%64))
	n := binary.BigEndian.AppendUint32(nil, uint32(number))
	record := Record{number, []byte(key), []byte(value), []Header{{"n", n}, {"text", text}}}
	if !hasHeaders {
		record.Headers = nil
	}
	return record
}

// Item is a record as it was read.
type Item struct {
	Partition  int
	Offset     int64
	Key, Value []byte
	Headers    []Header
}

type place struct {
	partition int
	offset    int64
}

// Check takes what was read as it comes; Finish says whether it is what was written.
type Check struct {
	Headers  bool
	Repeated int

	lock    sync.Mutex
	placed  map[place]int
	numbers map[int]bool
	last    map[int]int64
}

// NewCheck makes an empty one.
func NewCheck(headers bool) *Check {
	return &Check{Headers: headers, placed: map[place]int{}, numbers: map[int]bool{}, last: map[int]int64{}}
}

// Add checks one record's content and returns its number.
func (c *Check) Add(item Item) int {
	where := fmt.Sprintf("partition %d offset %d", item.Partition, item.Offset)
	front, _, _ := strings.Cut(string(item.Value), ":")
	number, err := strconv.Atoi(front)
	Assert(err == nil, "%s: value %q", where, item.Value)
	wanted := RecordOf(number)
	Assert(bytes.Equal(item.Key, wanted.Key), "%s: key %q instead of %q", where, item.Key, wanted.Key)
	Assert(bytes.Equal(item.Value, wanted.Value), "%s: value %q instead of %q", where, item.Value, wanted.Value)
	if c.Headers {
		same := len(item.Headers) == len(wanted.Headers)
		for i := 0; same && i < len(wanted.Headers); i++ {
			same = item.Headers[i].Name == wanted.Headers[i].Name && bytes.Equal(item.Headers[i].Value, wanted.Headers[i].Value)
		}
		Assert(same, "%s: headers %v instead of %v", where, item.Headers, wanted.Headers)
	}
	c.lock.Lock()
	defer c.lock.Unlock()
	at := place{item.Partition, item.Offset}
	if known, there := c.placed[at]; there {
		Assert(known == number, "%s: record %d, but earlier it was record %d", where, number, known)
	}
	c.placed[at] = number
	if last, there := c.last[item.Partition]; there && item.Offset <= last {
		c.Repeated++
	}
	c.last[item.Partition] = item.Offset
	c.numbers[number] = true
	return number
}

// Placed counts the places that were read.
func (c *Check) Placed() int {
	c.lock.Lock()
	defer c.lock.Unlock()
	return len(c.placed)
}

// Has says whether all these numbers were seen.
func (c *Check) Has(first, last int) bool {
	c.lock.Lock()
	defer c.lock.Unlock()
	for number := first; number < last; number++ {
		if !c.numbers[number] {
			return false
		}
	}
	return true
}

// Numbers is first, first+1, ... last-1.
func Numbers(first, last int) []int {
	numbers := make([]int, 0, last-first)
	for number := first; number < last; number++ {
		numbers = append(numbers, number)
	}
	return numbers
}

// Finish asserts that each wanted number is at one offset, that nothing else is there, and order and partitions.
func (c *Check) Finish(wanted []int, repeats bool) {
	c.lock.Lock()
	defer c.lock.Unlock()
	missing := 0
	for _, number := range wanted {
		if !c.numbers[number] {
			missing++
		}
	}
	Assert(missing == 0, "%d of %d records are missing", missing, len(wanted))
	Assert(len(c.numbers) == len(wanted), "%d records should not be there", len(c.numbers)-len(wanted))
	Assert(len(c.placed) == len(c.numbers), "%d records were written twice", len(c.placed)-len(c.numbers))
	Assert(repeats || c.Repeated == 0, "%d records were delivered again or out of order", c.Repeated)
	places := make([]place, 0, len(c.placed))
	for at := range c.placed {
		places = append(places, at)
	}
	sort.Slice(places, func(i, j int) bool {
		a, b := places[i], places[j]
		return a.partition < b.partition || a.partition == b.partition && a.offset < b.offset
	})
	last, homes := map[int]int{}, map[int]int{}
	for _, at := range places {
		number := c.placed[at]
		before, there := last[at.partition]
		Assert(!there || number > before, "partition %d offset %d: %d comes after %d", at.partition, at.offset, number, before)
		last[at.partition] = number
		home, there := homes[number%Keys]
		Assert(!there || home == at.partition, "key-%d is in partitions %d and %d", number%Keys, home, at.partition)
		homes[number%Keys] = at.partition
	}
}
