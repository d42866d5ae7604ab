package harness

import (
	"fmt"
	"os"
	"os/exec"
	"sync/atomic"
	"time"
)

// Member is a consumer of a group; used by one goroutine only.
type Member interface {
	// Poll returns what came within a moment.
	Poll() []Item
	// Assigned are the partitions that this member has now.
	Assigned() map[int]bool
	// Close commits what was read and leaves the group.
	Close()
}

type running struct {
	name     string
	check    *Check
	read     atomic.Int64
	assigned atomic.Pointer[map[int]bool]
	leaving  atomic.Bool
	ended    chan struct{}
	problem  atomic.Pointer[string]
}

func run(name string, open func() Member, check *Check) *running {
	r := &running{name: name, check: check, ended: make(chan struct{})}
	r.assigned.Store(&map[int]bool{})
	go func() {
		defer close(r.ended)
		defer func() {
			if reason := recover(); reason != nil {
				text := fmt.Sprintf("%s: %v", name, reason)
				r.problem.Store(&text)
			}
		}()
		member := open()
		for !r.leaving.Load() {
			for _, item := range member.Poll() {
				check.Add(item)
				r.read.Add(1)
			}
			assigned := member.Assigned()
			r.assigned.Store(&assigned)
		}
		member.Close()
	}()
	return r
}

func (r *running) partitions() map[int]bool { return *r.assigned.Load() }

func (r *running) raise() {
	if problem := r.problem.Load(); problem != nil {
		panic(failure(*problem))
	}
}

func (r *running) leave() {
	r.leaving.Store(true)
	select {
	case <-r.ended:
	case <-time.After(caseTimeout / 3):
		Assert(false, "%s does not leave the group", r.name)
	}
	r.raise()
}

func shared(one, other map[int]bool) bool {
	if len(one) == 0 || len(other) == 0 || len(one)+len(other) != Partitions {
		return false
	}
	for partition := range one {
		if other[partition] {
			return false
		}
	}
	return true
}

// ShareTopicInGroup is the case consume-group: one member, then two, then one; each time something to read.
func ShareTopicInGroup(open func() Member, produce func(first, last int), headers bool) string {
	check := NewCheck(headers)
	produce(0, 1000)
	first := run("first", open, check)
	members := []*running{first}
	step := func() {
		for _, member := range members {
			member.raise()
		}
		Pause()
	}
	Until(func() bool { return check.Has(0, 1000) && len(first.partitions()) == Partitions }, step,
		"the first member reads all", 40)
	second := run("second", open, check)
	members = append(members, second)
	Until(func() bool { return shared(first.partitions(), second.partitions()) }, step,
		"two members share the partitions", 40)
	produce(1000, 2000)
	Until(func() bool { return check.Has(0, 2000) }, step, "two members read all", 40)
	bySecond := second.read.Load()
	Assert(bySecond > 0, "the second member has read nothing")
	members = members[:1]
	second.leave()
	Until(func() bool { return len(first.partitions()) == Partitions }, step,
		"the first member has all partitions again", 40)
	produce(2000, 3000)
	Until(func() bool { return check.Has(0, 3000) }, step, "the remaining member reads all", 40)
	first.leave()
	check.Finish(Numbers(0, 3000), true)
	return fmt.Sprintf("3000 records, %d by the second member, %d again after a rebalance", bySecond, check.Repeated)
}

func restartBroker(how string) {
	command := os.Getenv("COMPAT_RESTART")
	if command == "" {
		Skip("no command that restarts the broker was given in COMPAT_RESTART")
	}
	output, err := exec.Command("sh", "-c", command+" "+how).CombinedOutput()
	Assert(err == nil, "%s %s: %s", command, how, output)
}

// OutliveBroker is the cases broker-restart and broker-kill. readAndCommit is a consumer of one group that reads until
// so many records were seen, commits and closes; open opens one of another group, which stays over the restart.
func OutliveBroker(how string, send func(first, last int), open func() Member, readAndCommit func(*Check, int), headers bool) string {
	half, check, followed := Count/2, NewCheck(headers), NewCheck(headers)
	send(0, half)
	follower := run("the member that stays", open, followed)
	reach := func(goal int) {
		Until(func() bool { return followed.Has(0, goal) }, func() { follower.raise(); Pause() },
			fmt.Sprintf("the member that stays reads %d records", goal), 40)
		followed.Finish(Numbers(0, goal), true)
	}
	reach(half)
	readAndCommit(check, Count/3)
	before := check.Placed()
	restartBroker(how)
	send(half, Count)
	readAndCommit(check, Count)
	check.Finish(Numbers(0, Count), false)
	reach(Count)
	follower.leave()
	return fmt.Sprintf("%d records, commit, broker's restart, %d more by a new member", before, Count-before)
}
