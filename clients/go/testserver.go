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

// Broker is one broker. It ends with the test that has started it, and with this process at the latest.
type Broker struct {
	Bootstrap  string `json:"bootstrap_servers"` // host:port for a client's seed brokers
	ControlURL string `json:"control_url"`
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
		t.Fatalf("starting %s: %v", words[0], err)
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
