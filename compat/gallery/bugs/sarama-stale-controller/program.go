// A tool that creates an ACL just when the controller has moved.
package main

import (
	"fmt"
	"os"

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
	err = admin.CreateACL(
		sarama.Resource{ResourceType: sarama.AclResourceTopic, ResourceName: "orders", ResourcePatternType: sarama.AclPatternLiteral},
		sarama.Acl{Principal: "User:alice", Host: "*", Operation: sarama.AclOperationRead, PermissionType: sarama.AclPermissionAllow})
	filter := sarama.AclFilter{
		ResourceType: sarama.AclResourceTopic, ResourcePatternTypeFilter: sarama.AclPatternAny,
		Operation: sarama.AclOperationAny, PermissionType: sarama.AclPermissionAny,
	}
	found, listed := admin.ListAcls(filter)
	if listed != nil {
		fmt.Println("it failed before it came to the point:", listed)
		os.Exit(3)
	}
	if len(found) == 0 {
		fmt.Printf("SHOWN CreateACL returned the error %v, and there is no ACL\n", err)
	} else {
		fmt.Printf("NOT SHOWN the ACL is there, CreateACL returned the error %v\n", err)
	}
}
