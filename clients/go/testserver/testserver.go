// Package testserver starts a Kafka broker for tests: `barnabas test-server`, steered over its control API.
package testserver

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"
)

const wayOut = "install it with `pip install barnabas`, or name the command in BARNABAS_COMMAND, as `uvx barnabas`"

// Broker is one broker, or with --brokers a cluster. It ends with the test that has started it, and with this process at the latest.
type Broker struct {
	Bootstrap  string `json:"bootstrap_servers"` // host:port for a client's seed brokers, of a cluster with commas between
	ControlURL string `json:"control_url"`
	// Security is what clients are given of a broker that was started with --security.
	Security struct {
		Protocol     string            `json:"protocol"`
		Mechanism    string            `json:"mechanism"`
		Passwords    map[string]string `json:"passwords"`    // by user
		CA           string            `json:"ca"`           // path of a PEM file
		Certificates map[string]string `json:"certificates"` // by user, paths of PEM files with the key
	} `json:"security"`
}

// Start starts a broker with the arguments of `barnabas test-server` and waits until it answers.
func Start(t testing.TB, options ...string) *Broker {
	t.Helper()
	words := strings.Fields(os.Getenv("BARNABAS_COMMAND"))
	if len(words) == 0 {
		words = []string{"barnabas"}
	}
	words = append(append(words, "test-server"), options...)
	command := exec.Command(words[0], words[1:]...)
	command.Stderr = os.Stderr
	input, err := command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatalf("cannot start the broker: %v; %s", err, wayOut)
	}
	t.Cleanup(func() {
		input.Close() // whereupon it ends
		command.Wait()
	})
	broker := &Broker{}
	if err := json.NewDecoder(output).Decode(broker); err != nil {
		t.Fatalf("the broker did not start: %v", err)
	}
	return broker
}

// Control sends a request to the control API. body and answer are values for JSON; both may be nil.
func (b *Broker) Control(method, path string, body, answer any) error {
	var content io.Reader
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return err
		}
		content = bytes.NewReader(data)
	}
	request, err := http.NewRequest(method, b.ControlURL+path, content)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode >= 400 {
		return fmt.Errorf("%s %s: %s", method, path, strings.TrimSpace(string(data)))
	}
	if answer == nil || len(data) == 0 {
		return nil
	}
	return json.Unmarshal(data, answer)
}

// WaitForRecords waits up to ten seconds until a topic holds at least so many records.
func (b *Broker) WaitForRecords(topic string, count int) error {
	return b.Control("GET", fmt.Sprintf("/v1/wait/records?topic=%s&count=%d", url.QueryEscape(topic), count), nil, nil)
}

// WaitForGroup waits up to ten seconds until a group is stable.
func (b *Broker) WaitForGroup(group string) error {
	return b.Control("GET", "/v1/wait/group?group="+url.QueryEscape(group), nil, nil)
}

// Snapshot keeps what the broker holds now under a name.
func (b *Broker) Snapshot(name string) error {
	return b.Control("POST", "/v1/snapshots", map[string]string{"name": name}, nil)
}

// Restore goes back to a snapshot. Connections are cut, the address stays.
func (b *Broker) Restore(name string) error {
	return b.Control("POST", "/v1/snapshots/"+url.PathEscape(name)+"/restore", nil, nil)
}

// Reset goes back to what the broker was started with.
func (b *Broker) Reset() error {
	return b.Control("POST", "/v1/reset", nil, nil)
}

// Cluster is what a cluster says of itself: the active controller (0 for none) and its nodes.
type Cluster struct {
	Controller int `json:"controller"`
	Nodes      []struct {
		ID         int      `json:"id"`
		Roles      []string `json:"roles"`
		Bootstrap  string   `json:"bootstrap"`
		ControlURL string   `json:"control_url"`
		Running    bool     `json:"running"`
		Isolated   bool     `json:"isolated"`
	} `json:"nodes"`
}

// Cluster returns the nodes of a cluster that was started with --brokers.
func (b *Broker) Cluster() (*Cluster, error) {
	cluster := &Cluster{}
	return cluster, b.Control("GET", "/v1/cluster", nil, cluster)
}

// KillNode ends a node as kill -9 does; it stays down.
func (b *Broker) KillNode(node int) error { return b.onNode(node, "kill", nil) }

// StopNode stops a node cleanly, which moves what it leads to others first; it stays down.
func (b *Broker) StopNode(node int) error { return b.onNode(node, "stop", nil) }

// StartNode starts a node that is down, at its old address, and waits until it serves.
func (b *Broker) StartNode(node int) error { return b.onNode(node, "start", nil) }

// IsolateNode cuts a node off from all others: nothing arrives in either direction; if so asked, from clients too.
func (b *Broker) IsolateNode(node int, clients bool) error {
	return b.onNode(node, "isolate", map[string]bool{"clients": clients})
}

// RejoinNode lets a node that was cut off reach the others again.
func (b *Broker) RejoinNode(node int) error { return b.onNode(node, "rejoin", nil) }

func (b *Broker) onNode(node int, act string, body any) error {
	return b.Control("POST", fmt.Sprintf("/v1/cluster/nodes/%d/%s", node, act), body, nil)
}

// CreateTopic makes a topic in a cluster and waits until all brokers know its leaders.
func (b *Broker) CreateTopic(topic string, partitions int) error {
	return b.Control("POST", "/v1/cluster/topics/"+url.PathEscape(topic), map[string]int{"partitions": partitions}, nil)
}

// Leaders returns the leader of each partition of a topic, -1 for none.
func (b *Broker) Leaders(topic string) (map[int]int, error) {
	var answer struct {
		Leaders map[int]int `json:"leaders"`
	}
	err := b.Control("GET", "/v1/cluster/leaders/"+url.PathEscape(topic), nil, &answer)
	return answer.Leaders, err
}

// MoveLeader has a replica lead a partition, by Kafka's own requests, and waits until all brokers know it.
func (b *Broker) MoveLeader(topic string, partition, leader int) error {
	path := fmt.Sprintf("/v1/cluster/leaders/%s/%d", url.PathEscape(topic), partition)
	return b.Control("PUT", path, map[string]int{"leader": leader}, nil)
}
