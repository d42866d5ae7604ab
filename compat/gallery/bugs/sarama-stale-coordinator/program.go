// A tool that asks for a group's offsets, while the coordinator moves.
package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/IBM/sarama"
)

func main() {
	config := sarama.NewConfig()
	config.Version = sarama.V2_8_0_0
	admin, err := sarama.NewClusterAdmin([]string{os.Args[1]}, config)
	if err != nil {
		fmt.Println("it failed before it came to the point:", err)
		os.Exit(3)
	}
	said := ""
	for i := 0; i < 4; i++ {
		response, err := admin.ListConsumerGroupOffsets("billing", map[string][]int32{"orders": {0}})
		if err != nil {
			said = err.Error()
		} else if response.Err != sarama.ErrNoError {
			said = response.Err.Error()
		}
		time.Sleep(100 * time.Millisecond)
	}
	if looked := count("FindCoordinator"); looked < 2 {
		fmt.Printf("SHOWN told NOT_COORDINATOR %d times (%s), it looked for the coordinator %d time\n", count("OffsetFetch"), said, looked)
	} else {
		fmt.Printf("NOT SHOWN told NOT_COORDINATOR, it looked for the coordinator %d times\n", looked)
	}
}

// count returns how many requests of an API the broker has got.
func count(api string) int {
	answer, err := http.Get(os.Getenv("GALLERY_CONTROL") + "/v1/requests?api=" + api)
	if err != nil {
		panic(err)
	}
	defer answer.Body.Close()
	var found struct{ Requests []any }
	if err := json.NewDecoder(answer.Body).Decode(&found); err != nil {
		panic(err)
	}
	return len(found.Requests)
}
